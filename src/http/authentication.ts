import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import { LRUCache } from 'lru-cache';
import { Refusal } from '../errors.ts';
import type { Store } from '../store.ts';
import {
  digestSecret,
  isValid,
  isWellFormedSecret,
  LAST_USE_STEP_MS,
  type Scope,
  type Token,
} from '../token.ts';

/** How long a token is taken for what it was when last read: half of the second in which a revocation must be seen. */
const TOKEN_FRESH_MS = 500;
const TOKENS_CACHED = 10_000;

const CHALLENGE = 'Bearer realm="plant-store"';
const CREDENTIALS = /^bearer(?: +(.*))?$/i;

export type AuthenticationHook = (
  request: FastifyRequest,
  reply: FastifyReply,
  done: HookHandlerDoneFunction,
) => void;

export interface Authentication {
  /** A hook that lets a request pass whose bearer token (RFC 6750) has the scope, and names its caller. */
  require(scope: Scope): AuthenticationHook;
}

export interface AuthenticationOptions {
  readonly store: Store;
  readonly now: () => number;
  /** Called for each token that the cache had, and each time that the store is asked for one. */
  readonly onLookUp: (wasCached: boolean) => void;
  /** Called when the last use of a token could not be recorded; the request goes on. */
  readonly onUseNotRecorded: (error: unknown) => void;
}

export function createAuthentication({
  store,
  now,
  onLookUp,
  onUseNotRecorded,
}: AuthenticationOptions): Authentication {
  // By the whole header, so that the usual request is neither parsed nor hashed; it is kept no longer than it is fresh.
  const tokens = new LRUCache<string, Token, Uint8Array>({
    max: TOKENS_CACHED,
    ttl: TOKEN_FRESH_MS,
    fetchMethod: (_authorization, _stale, { context }) => {
      onLookUp(false);
      return store.findToken(context);
    },
  });
  const usesRecorded = new LRUCache<string, number>({ max: TOKENS_CACHED });

  async function find(authorization: string, digest: Uint8Array): Promise<Token | undefined> {
    return tokens.fetch(authorization, { context: digest });
  }

  function recordUse({ id, lastUsedAt }: Token): void {
    const at = now();
    if (at - Math.max(lastUsedAt ?? 0, usesRecorded.get(id) ?? 0) < LAST_USE_STEP_MS) return;
    usesRecorded.set(id, at);
    store.write({ kind: 'recordTokenUse', id, at }).catch(onUseNotRecorded);
  }

  function admit(request: FastifyRequest, token: Token | undefined, scope: Scope): void {
    if (token === undefined || !isValid(token, now())) throw invalidToken();
    if (!token.scopes.includes(scope)) throw tooNarrow(scope);
    request.caller = token;
    recordUse(token);
  }

  function require(scope: Scope): AuthenticationHook {
    return (request, _reply, done) => {
      const { authorization = '' } = request.headers;
      const known = tokens.get(authorization);
      if (known !== undefined) {
        onLookUp(true);
        admit(request, known, scope);
        done();
        return;
      }
      find(authorization, digestSecret(readSecret(request)))
        .then((token) => admit(request, token, scope))
        .then(() => done(), done);
    };
  }

  return { require };
}

function readSecret(request: FastifyRequest): string {
  const { authorization } = request.headers;
  if (authorization === undefined) throw noCredentials();
  const match = CREDENTIALS.exec(authorization.trim());
  if (match === null) throw noCredentials();
  const secret = match[1] ?? '';
  if (!isWellFormedSecret(secret)) throw invalidToken();
  return secret;
}

// RFC 6750 §3.1: a request without bearer credentials gets the bare challenge, without an error code.
function noCredentials(): Refusal {
  return new Refusal(40100, 'send a token in the header `Authorization: Bearer <ACCESS_TOKEN>`', {
    'www-authenticate': CHALLENGE,
  });
}

// One and the same for every token that opens nothing, so that it tells nothing of other tokens.
function invalidToken(): Refusal {
  return new Refusal(40101, 'the token is not valid: unknown, malformed, expired or revoked', {
    'www-authenticate': `${CHALLENGE}, error="invalid_token"`,
  });
}

function tooNarrow(scope: Scope): Refusal {
  return new Refusal(40300, `the token lacks the scope ${scope}`, {
    'www-authenticate': `${CHALLENGE}, error="insufficient_scope", scope="${scope}"`,
  });
}
