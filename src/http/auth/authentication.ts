import { hash } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { LRUCache } from 'lru-cache';
import { ApiError } from '../../api-errors.ts';
import type { Audit, AuditSource } from '../../observability/audit-log.ts';
import { type Store, withNothingStored } from '../../store/store.ts';
import { type FoundToken, isValid, isWellFormedSecret, type Scope } from '../../token.ts';
import { countOf } from '../header-names.ts';
import { ownerOf, type RequestHook } from '../operation.ts';
import { networkOf } from './client-address.ts';
import type { RecordUse } from './last-use.ts';
import type { RejectedTokens } from './rate-limit.ts';

/**
 * Milliseconds for which a cached token is valid without a lookup. A revocation takes effect within this time plus
 * `RECHECK_MS` (list-plants.ts). The sum must be below a second.
 */
export const TOKEN_FRESH_MS = 500;
/**
 * Age in milliseconds of the last successful lookup of a token from which a failed lookup ends a list. The next lookup
 * comes up to `RECHECK_MS` later, still within a second.
 */
export const CONFIRMED_MS = 800;
export const TOKENS_CACHED = 10_000;
/** Max characters of all cached tokens. A JWT has up to 8 KiB. */
export const CHARACTERS_CACHED = 8 * 1_024 * 1_024;

const CHALLENGE = 'Bearer realm="plant-store"';
const USUAL_SCHEME = 'Bearer ';
const CREDENTIALS = /^bearer(?: +(.*))?$/i;

// A request without a bearer token gets a `WWW-Authenticate` without the attribute `error` (RFC 6750 §3.1).
const noCredentials = new ApiError(
  40100,
  'no bearer token; send the header `Authorization: Bearer <ACCESS_TOKEN>`',
  {
    'www-authenticate': CHALLENGE,
  },
);

// All invalid tokens get the same response, which does not reveal why a token is invalid.
const invalidToken = new ApiError(40101, 'invalid token: unknown, malformed, expired or revoked', {
  'www-authenticate': `${CHALLENGE}, error="invalid_token"`,
});

/** A time on two clocks: one can be set, the other stands still while the machine sleeps. */
export interface Moment {
  /** Milliseconds since the epoch. */
  readonly wall: number;
  /** Milliseconds of the monotonic clock. */
  readonly monotonic: number;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Time when the last successful lookup of the token began. Undefined before the first one. */
    tokenConfirmedAt: Moment | undefined;
  }
}

export interface Authentication {
  /**
   * Returns a hook that requires a valid bearer token (RFC 6750) with this scope, and sets `request.caller`.
   */
  require(scope: Scope): RequestHook;
  /**
   * Checks again, while a request runs, that its token grants the scope. Looks up each token up to twice a second, and
   * again after each failure. Rejects with an ApiError (40101 or 40300) if the scope is no longer granted. If the
   * lookup fails, rejects with its error, unless a lookup within the last `CONFIRMED_MS` has succeeded.
   */
  recheck(request: FastifyRequest, scope: Scope): Promise<void>;
}

/** Permissions of a valid token of the service or of the identity provider. */
export type Grant = Pick<FoundToken, 'owner' | 'scopes' | 'expiresAt' | 'revokedAt'>;

/** Runs `work` within a limit. Rejects with an ApiError (50301) if the limit is reached. */
export type Run = <T>(work: () => Promise<T>) => Promise<T>;

/** The group whose limits a lookup counts towards. */
interface LookupGroup {
  /** `running`: recheck of a request in progress. `accepted`: token valid at its last lookup. `other`: any other token. */
  readonly kind: 'running' | 'accepted' | 'other';
  /** The owner of the token. For other tokens, the network of the client. */
  readonly key: string;
}

/** Limits of the verification of a JWT. */
interface JwtLimits {
  /** Runs the work: checking the signature and the claims. */
  readonly verify: Run;
  /** Waits for keys of the identity provider. Not inside `verify`, so that a provider that hangs takes no slots there. */
  readonly wait: Run;
}

/**
 * Reason why a token is invalid, for the audit log. `malformed`: neither a token of the service nor, with an identity
 * provider, a JWT. `issuer`: a JWT of another issuer, by its unverified claim. The others are for JWTs with a valid signature;
 * `claims`: any other claim or header.
 */
export interface TokenRejection {
  readonly rejection: 'malformed' | 'issuer' | 'expired' | 'audience' | 'scope' | 'claims';
  readonly owner?: string;
}

/** Verifies a token that this service has not issued. Resolves to undefined if its signature or form is invalid. */
export type VerifyJwt = (secret: string, limits: JwtLimits) => Promise<Grant | TokenRejection | undefined>;

type Found = FoundToken | Grant | TokenRejection | undefined;

/**
 * A cached lookup of a token. `answer` resolves to the service's token or to the identity provider's grant.
 * For an invalid token, `answer` resolves to undefined or a rejection. `found` gives synchronous code the same value.
 * `found` is undefined until then.
 */
interface Lookup {
  /** SHA-256 of the token, in base64. */
  readonly digest: string;
  found: Found;
  readonly answer: Promise<Found>;
  /** Time when the lookup began: its result may be outdated when it ends. */
  readonly startedAt: Moment;
  /** Earliest time to record another use of the token, in milliseconds since the epoch. */
  recordUseFrom: number;
}

interface AuthenticationOptions {
  /** Finds a token of the service. */
  readonly findToken: (digest: Uint8Array, group: LookupGroup) => ReturnType<Store['findToken']>;
  readonly verifyJwt: VerifyJwt | undefined;
  readonly jwtLimitsOf: (group: LookupGroup) => JwtLimits;
  /** Returns milliseconds since the epoch. */
  readonly now: () => number;
  /** Returns the milliseconds of a monotonic clock. */
  readonly monotonicNow: () => number;
  /** Called with true for a token in the cache, also while it is looked up, and with false for one that must be verified. */
  readonly onLookup: (wasCached: boolean) => void;
  /** Called with each request whose token is not cached. */
  readonly onUncached: (request: FastifyRequest) => void;
  readonly audit: Audit;
  readonly rejectedTokens: RejectedTokens;
  readonly recordUse: RecordUse;
}

export function createAuthentication({
  findToken,
  verifyJwt,
  jwtLimitsOf,
  now,
  monotonicNow,
  onLookup,
  onUncached,
  audit,
  rejectedTokens,
  recordUse,
}: AuthenticationOptions): Authentication {
  // The cache key is the token as the client sent it, so that a cache hit needs no hash. `ttl` of lru-cache is not used:
  // it caches the time until a timer fires. After a pause of the process, requests may run before that timer.
  const lookups = new LRUCache<string, Lookup>({
    max: TOKENS_CACHED,
    maxSize: CHARACTERS_CACHED,
    sizeCalculation: (_lookup, secret) => Math.max(1, secret.length),
  });

  /**
   * Returns the milliseconds from a moment to the time `at`, by the clock that shows more. A clock set back shows the
   * change.
   */
  function ageOf({ wall, monotonic }: Moment, at: number): number {
    return Math.max(Math.abs(at - wall), monotonicNow() - monotonic);
  }

  /** Returns the cached lookup of a token, unless it is too old at this time. */
  function findFresh(secret: string, at: number): Lookup | undefined {
    const lookup = lookups.get(secret);
    if (lookup === undefined || ageOf(lookup.startedAt, at) >= TOKEN_FRESH_MS) return undefined;
    onLookup(true);
    return lookup;
  }

  function lookUp(secret: string, digest: string, group: LookupGroup, at: number): Lookup {
    const startedAt = { wall: at, monotonic: monotonicNow() };
    const answer = find(secret, digest, group).then((found) => {
      started.found = found;
      return found;
    });
    const started: Lookup = { digest, found: undefined, answer, startedAt, recordUseFrom: 0 };
    lookups.set(secret, started);
    answer.catch(() => evict(secret, started));
    return started;
  }

  function evict(secret: string, lookup: Lookup): void {
    if (lookups.peek(secret) === lookup) lookups.delete(secret);
  }

  async function find(secret: string, digest: string, group: LookupGroup): Promise<Found> {
    const isLocal = isWellFormedSecret(secret);
    if (!isLocal && verifyJwt === undefined) return { rejection: 'malformed' };
    onLookup(false);
    if (!isLocal) return verifyJwt?.(secret, jwtLimitsOf(group));
    try {
      return await findToken(Buffer.from(digest, 'base64'), group);
    } catch (error: unknown) {
      throw withNothingStored(error);
    }
  }

  function groupOf({ ip }: FastifyRequest, digest: string): LookupGroup {
    const owner = rejectedTokens.acceptedOwner(digest);
    return owner === undefined ? { kind: 'other', key: networkOf(ip) } : { kind: 'accepted', key: owner };
  }

  /** Returns the grant of a token. Throws an ApiError (40101) if the token is invalid at this time. */
  function getGrant(request: FastifyRequest, secret: string, lookup: Lookup, at: number): FoundToken | Grant {
    const { found } = lookup;
    if (found === undefined || 'rejection' in found || !isValid(found, at)) {
      audit.tokenRejected(reasonOf(found), found ?? {}, sourceOf(request));
      rejectedTokens.rejected(request.ip, lookup.digest);
      // Invalid tokens are not cached: a cached one would bypass the limits of `rejectedTokens`.
      evict(secret, lookup);
      throw invalidToken;
    }
    return found;
  }

  /**
   * Sets the caller of a request. Throws an ApiError (40101 or 40300) if the token does not grant the scope at this
   * time.
   */
  function admit(request: FastifyRequest, secret: string, lookup: Lookup, scope: Scope, at: number): void {
    const grant = getGrant(request, secret, lookup, at);
    // Also for a 403, whose log line names the owner and the token.
    request.caller = grant;
    if (!grant.scopes.includes(scope)) {
      audit.tokenRejected('insufficientScope', grant, sourceOf(request));
      throw tooNarrow(scope);
    }
    request.tokenConfirmedAt = lookup.startedAt;
    if (at >= lookup.recordUseFrom && 'id' in grant)
      lookup.recordUseFrom = recordUse(grant, at, () => sourceOf(request));
  }

  function require(scope: Scope): RequestHook {
    return (request, _reply, done) => {
      if (countOf(request.raw.rawHeaders, 'authorization') > 1)
        throw new ApiError(40000, 'the header `Authorization` must be sent once');
      const secret = readSecret(request);
      const at = now();
      const known = findFresh(secret, at);
      if (known?.found !== undefined) {
        admit(request, secret, known, scope, at);
        done();
        return;
      }
      onUncached(request);
      const digest = known?.digest ?? digestOf(secret);
      if (rejectedTokens.isKnownInvalid(request.ip, digest)) throw invalidToken;
      rejectedTokens.rejectBeyond(request.ip, digest);
      const pending = known ?? lookUp(secret, digest, groupOf(request, digest), at);
      pending.answer
        .then(
          () => {
            const answeredAt = now();
            rejectedTokens.accepted(digest, getGrant(request, secret, pending, answeredAt).owner);
            admit(request, secret, pending, scope, answeredAt);
          },
          (error: unknown) => {
            rejectedTokens.undecided(request.ip, digest);
            throw error;
          },
        )
        .then(() => done(), done);
    };
  }

  async function recheck(request: FastifyRequest, scope: Scope): Promise<void> {
    const secret = readSecret(request);
    const at = now();
    const group: LookupGroup = { kind: 'running', key: ownerOf(request) };
    const known = findFresh(secret, at) ?? lookUp(secret, digestOf(secret), group, at);
    try {
      await known.answer;
    } catch (error: unknown) {
      const { tokenConfirmedAt } = request;
      if (tokenConfirmedAt === undefined || ageOf(tokenConfirmedAt, now()) >= CONFIRMED_MS) throw error;
      return;
    }
    admit(request, secret, known, scope, now());
  }

  return { require, recheck };
}

/** Returns the reason, for the audit log, why a token is invalid. */
function reasonOf(found: Found): 'unknown' | 'revoked' | TokenRejection['rejection'] {
  if (found === undefined) return 'unknown';
  if ('rejection' in found) return found.rejection;
  return found.revokedAt === null ? 'expired' : 'revoked';
}

/** Returns the SHA-256 of a token as text: a key of caches, and faster to compute than as bytes. */
function digestOf(secret: string): string {
  return hash('sha256', secret, 'base64');
}

function sourceOf({ id, ip }: FastifyRequest): AuditSource {
  return { requestId: id, address: ip, network: networkOf(ip) };
}

/**
 * Returns the token in `Authorization`. The scheme `Bearer` is case-insensitive. Throws an ApiError (40100)
 * if the header is missing or has another scheme.
 */
function readSecret({ headers: { authorization } }: FastifyRequest): string {
  if (authorization === undefined) throw noCredentials;
  const begin = USUAL_SCHEME.length;
  // Handles the usual spelling (`Bearer` and one space) without the regular expression, which is slower.
  if (authorization.startsWith(USUAL_SCHEME) && authorization[begin] !== ' ')
    return authorization.slice(begin);
  const match = CREDENTIALS.exec(authorization);
  if (match === null) throw noCredentials;
  return match[1] ?? '';
}

function tooNarrow(scope: Scope): ApiError {
  return new ApiError(40300, `the token lacks the scope ${scope}; use a token with this scope`, {
    'www-authenticate': `${CHALLENGE}, error="insufficient_scope", scope="${scope}"`,
  });
}
