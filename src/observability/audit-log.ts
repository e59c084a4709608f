import type { Token } from '../token.ts';
import type { EventLog } from './log-events.ts';

/** The request that caused an audit event. */
export interface AuditSource {
  readonly requestId: string;
  /** The IP address of the client. */
  readonly address: string;
  /** The network of the address: an IPv4 address, or the first 64 bits of an IPv6 address. */
  readonly network: string;
}

/**
 * `issuer` is of JWTs whose signature was not checked; `audience`, `scope` and `claims` are of JWTs with a valid one.
 * `insufficientScope` is a 403.
 */
type RejectionReason =
  | 'unknown'
  | 'malformed'
  | 'issuer'
  | 'expired'
  | 'revoked'
  | 'audience'
  | 'scope'
  | 'claims'
  | 'insufficientScope';

/**
 * Outcome of a write, as the store reported it. `unknown` means that its response was lost: the write may have had its
 * effect.
 */
export type WriteOutcome = 'confirmed' | 'unknown';

/** Audit of token events. Each event is a log line with the field `audit`. */
export interface Audit {
  tokenCreated(token: Token, outcome?: WriteOutcome): void;
  tokenRevoked(id: string, outcome?: WriteOutcome): void;
  tokenFirstUsed(token: Pick<Token, 'id' | 'owner'>, source: AuditSource): void;
  tokenExpiresSoon(
    token: Pick<Token, 'id' | 'owner'> & { readonly expiresAt: number },
    source: AuditSource,
  ): void;
  /** Logs a rejected token, which is invalid or lacks the scope. `token` holds its id and owner, if known. */
  tokenRejected(
    reason: RejectionReason,
    token: Partial<Pick<Token, 'id' | 'owner'>>,
    source: AuditSource,
  ): void;
  /** Logs immediately how many rejected tokens no line has yet counted. */
  close(): void;
}

/**
 * Milliseconds of a time window that limits log lines about rejected tokens. In a window, each known token is
 * logged once per reason. Unknown tokens are logged once per network of clients.
 */
const WINDOW_MS = 60_000;
/** Max lines of each reason. One limit for all would let unknown tokens hide the uses of a revoked one. */
export const MAX_LINES_IN_WINDOW = 100;

/**
 * Creates an audit that writes to a log. Limits lines about rejected tokens, since any client can cause them.
 */
export function createAudit(log: EventLog): Audit {
  const seen = new Map<RejectionReason, Set<string>>();
  let more = 0;
  let window: NodeJS.Timeout | undefined;

  function mayLog(reason: RejectionReason, key: string): boolean {
    if (seen.size === 0) window = setTimeout(endWindow, WINDOW_MS).unref();
    const keys = seen.get(reason) ?? new Set();
    seen.set(reason, keys);
    if (keys.has(key) || keys.size >= MAX_LINES_IN_WINDOW) {
      more += 1;
      return false;
    }
    keys.add(key);
    return true;
  }

  function endWindow(): void {
    clearTimeout(window);
    seen.clear();
    if (more > 0)
      log.event('some rejected tokens were not logged, to limit the log', { audit: 'tokensRefused', more });
    more = 0;
  }

  return {
    tokenCreated: ({ id, owner, scopes, expiresAt }, outcome = 'confirmed') => {
      const expires = expiresAt === null ? 'never' : new Date(expiresAt).toISOString();
      const message = outcome === 'confirmed' ? 'a token was created' : 'a token may have been created';
      log.event(message, { audit: 'tokenCreated', token: id, owner, scopes, expires });
    },
    tokenRevoked: (id, outcome = 'confirmed') => {
      const message = outcome === 'confirmed' ? 'a token was revoked' : 'a token may have been revoked';
      log.event(message, { audit: 'tokenRevoked', token: id });
    },
    tokenFirstUsed: ({ id, owner }, { requestId, address }) => {
      const fields = { audit: 'tokenFirstUsed', token: id, owner, address, requestId };
      log.event('a token was used for the first time', fields);
    },
    tokenExpiresSoon: ({ id, owner, expiresAt }, { requestId, address }) => {
      const expires = new Date(expiresAt).toISOString();
      const fields = { audit: 'tokenExpiresSoon', token: id, owner, expires, address, requestId };
      log.event('a token in use expires within a week; create another one for its owner', fields);
    },
    tokenRejected: (reason, { id, owner }, { requestId, address, network }) => {
      if (!mayLog(reason, id ?? owner ?? network)) return;
      const fields = { audit: 'tokenRefused', reason, token: id, owner, address, requestId };
      log.event('a token was rejected', fields);
    },
    close: endWindow,
  };
}
