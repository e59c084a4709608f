import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import { LRUCache } from 'lru-cache';
import { ApiError } from '../../api-errors.ts';
import type { Audit, Origin } from '../../observability/audit-log.ts';
import type { Store } from '../../store/store.ts';
import {
  digestSecret,
  isValid,
  isWellFormedSecret,
  LAST_USE_STEP_MS,
  type Scope,
  type Token,
} from '../../token.ts';
import { countOf } from '../header-count.ts';
import type { RejectedTokens } from './rate-limit.ts';

/** How long a token is taken for what it was when last asked for: half of the second in which a revocation must be seen. */
const TOKEN_FRESH_MS = 500;
const TOKENS_CACHED = 10_000;

const CHALLENGE = 'Bearer realm="plant-store"';
const USUAL_SCHEME = 'Bearer ';
const CREDENTIALS = /^bearer(?: +(.*))?$/i;

// RFC 6750 §3.1: a request without bearer credentials gets the bare challenge, without an error code.
const noCredentials = new ApiError(
  40100,
  'send a token in the header `Authorization: Bearer <ACCESS_TOKEN>`',
  {
    'www-authenticate': CHALLENGE,
  },
);

// One and the same for every token that opens nothing, so that it tells nothing of other tokens.
const invalidToken = new ApiError(40101, 'the token is not valid: unknown, malformed, expired or revoked', {
  'www-authenticate': `${CHALLENGE}, error="invalid_token"`,
});

type AuthenticationHook = (
  request: FastifyRequest,
  reply: FastifyReply,
  done: HookHandlerDoneFunction,
) => void;

export interface Authentication {
  /** A hook that lets a request pass whose bearer token (RFC 6750) has the scope, and names its caller. */
  require(scope: Scope): AuthenticationHook;
  /**
   * Looks again, at most twice a second for each token, whether the token of a running request still grants the scope.
   * Rejects with an ApiError (40101 or 40300) when it does not; where that cannot be known now, the request goes on.
   */
  recheck(request: FastifyRequest, scope: Scope): Promise<void>;
}

/** What a secret grants to whoever shows it, be it a token of ours or one that another issuer vouches for. */
export type Grant = Pick<Token, 'owner' | 'scopes' | 'expiresAt' | 'revokedAt'>;

/** Finds what a secret grants that is not of our own form; undefined when it grants nothing. */
export type FindGrant = (secret: string) => Promise<Grant | undefined>;

/** What is known of a secret, or will be. */
interface LookUp {
  found: Token | Grant | undefined;
  readonly answer: Promise<Token | Grant | undefined>;
}

interface AuthenticationOptions {
  readonly store: Pick<Store, 'findToken' | 'write'>;
  readonly findForeignGrant: FindGrant | undefined;
  readonly now: () => number;
  /** Called for each token that the cache had, and each time that one was not there and had to be verified. */
  readonly onLookUp: (wasCached: boolean) => void;
  readonly audit: Audit;
  readonly refusedTokens: RejectedTokens;
  /** Called when the last use of a token could not be recorded; the request goes on. */
  readonly onUseNotRecorded: (error: unknown) => void;
}

export function createAuthentication({
  store,
  findForeignGrant,
  now,
  onLookUp,
  audit,
  refusedTokens,
  onUseNotRecorded,
}: AuthenticationOptions): Authentication {
  // By the secret as it was sent, so that the usual request hashes nothing; fresh from the moment it is asked for, since
  // a late answer tells what was true then.
  const lookUps = new LRUCache<string, LookUp>({ max: TOKENS_CACHED, ttl: TOKEN_FRESH_MS });
  const usesRecorded = new LRUCache<string, number>({ max: TOKENS_CACHED });
  const firstUsesLost = new LRUCache<string, true>({ max: TOKENS_CACHED });

  function lookUp(secret: string): LookUp {
    const started: LookUp = { found: undefined, answer: find(secret) };
    lookUps.set(secret, started);
    const forget = (): void => {
      if (lookUps.peek(secret) === started) lookUps.delete(secret);
    };
    started.answer.then((found) => {
      started.found = found;
      if (found === undefined) forget();
    }, forget);
    return started;
  }

  async function find(secret: string): Promise<Token | Grant | undefined> {
    const ask = isWellFormedSecret(secret) ? findToken : findForeignGrant;
    if (ask === undefined) return undefined;
    onLookUp(false);
    return ask(secret);
  }

  async function findToken(secret: string): Promise<Token | undefined> {
    return store.findToken(digestSecret(secret));
  }

  function recordUse(request: FastifyRequest, token: Token): void {
    const { id, lastUsedAt } = token;
    const at = now();
    const recordedAt = usesRecorded.get(id) ?? lastUsedAt;
    if (recordedAt !== null && at - Math.max(lastUsedAt ?? 0, recordedAt) < LAST_USE_STEP_MS) return;
    usesRecorded.set(id, at);
    const isFirst = recordedAt === null || firstUsesLost.has(id);
    store.write({ kind: 'recordTokenUse', id, at }).then(
      (outcome) => {
        firstUsesLost.delete(id);
        // Of all instances that see the first use, one gets to write it.
        if (isFirst && outcome === 'done') audit.tokenFirstUsed(token, originOf(request));
      },
      (error: unknown) => {
        if (isFirst) firstUsesLost.set(id, true);
        onUseNotRecorded(error);
      },
    );
  }

  function admit(
    request: FastifyRequest,
    secret: string,
    grant: Token | Grant | undefined,
    scope: Scope,
  ): void {
    if (grant === undefined || !isValid(grant, now())) {
      const reason = grant === undefined ? 'unknown' : grant.revokedAt === null ? 'expired' : 'revoked';
      audit.tokenRefused(reason, grant ?? {}, originOf(request));
      refusedTokens.refused(request.ip, secret);
      throw invalidToken;
    }
    if (!grant.scopes.includes(scope)) {
      audit.tokenRefused('insufficientScope', grant, originOf(request));
      throw tooNarrow(scope);
    }
    request.caller = grant;
    if ('id' in grant) recordUse(request, grant);
  }

  function require(scope: Scope): AuthenticationHook {
    return (request, _reply, done) => {
      if (countOf(request.raw.rawHeaders, 'authorization') > 1)
        throw new ApiError(40000, 'the header `Authorization` must be sent once');
      const secret = readSecret(request);
      const known = lookUps.get(secret);
      if (known?.found !== undefined) {
        onLookUp(true);
        admit(request, secret, known.found, scope);
        done();
        return;
      }
      refusedTokens.rejectBeyond(request.ip, secret);
      const { answer } = known ?? lookUp(secret);
      answer
        .then((grant) => {
          admit(request, secret, grant, scope);
          refusedTokens.accepted(secret);
        })
        .then(() => done(), done);
    };
  }

  async function recheck(request: FastifyRequest, scope: Scope): Promise<void> {
    const secret = readSecret(request);
    const { answer } = lookUps.get(secret) ?? lookUp(secret);
    const isKnown = await answer.then(
      () => true,
      () => false,
    );
    if (!isKnown) return;
    const grant = await answer;
    if (grant === undefined || !isValid(grant, now())) throw invalidToken;
    if (!grant.scopes.includes(scope)) throw tooNarrow(scope);
  }

  return { require, recheck };
}

function originOf({ id, ip }: FastifyRequest): Origin {
  return { requestId: id, address: ip };
}

/** What the `Authorization` header shows behind its scheme, however that is spelled. Throws an ApiError (40100). */
function readSecret({ headers: { authorization } }: FastifyRequest): string {
  if (authorization === undefined) throw noCredentials;
  const begin = USUAL_SCHEME.length;
  // Without a regular expression for what nearly every request says.
  if (authorization.startsWith(USUAL_SCHEME) && authorization[begin] !== ' ')
    return authorization.slice(begin);
  const match = CREDENTIALS.exec(authorization);
  if (match === null) throw noCredentials;
  return match[1] ?? '';
}

function tooNarrow(scope: Scope): ApiError {
  return new ApiError(40300, `the token lacks the scope ${scope}`, {
    'www-authenticate': `${CHALLENGE}, error="insufficient_scope", scope="${scope}"`,
  });
}
