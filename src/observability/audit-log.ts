import type { Token } from '../token.ts';

/** The part of a logger that the audit uses. */
interface AuditLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

/** The request behind an audit event. */
export interface Origin {
  readonly requestId: string;
  /** The IP address of the client. */
  readonly address: string;
}

type RejectionReason = 'unknown' | 'expired' | 'revoked' | 'insufficientScope';

/** Audit of token events. Each event is a log line with a field `audit`. */
export interface Audit {
  tokenCreated(token: Token): void;
  tokenRevoked(id: string): void;
  tokenFirstUsed(token: Pick<Token, 'id' | 'owner'>, origin: Origin): void;
  /** Token rejected: invalid, or lacks the scope. `token` holds its id and owner, if known. */
  tokenRejected(reason: RejectionReason, token: Partial<Pick<Token, 'id' | 'owner'>>, origin: Origin): void;
}

/** Window with one line for each token and reason, and one for each address with unknown tokens. */
const WINDOW_MS = 60_000;
const MAX_LINES_IN_WINDOW = 100;

/** Creates an audit that writes to a log. Rejections are rate-limited, since any client can cause them. */
export function createAudit(log: AuditLog): Audit {
  const seen = new Set<string>();
  let more = 0;

  function mayLog(key: string): boolean {
    if (seen.size === 0) setTimeout(endWindow, WINDOW_MS).unref();
    if (seen.has(key) || seen.size >= MAX_LINES_IN_WINDOW) {
      more += 1;
      return false;
    }
    seen.add(key);
    return true;
  }

  function endWindow(): void {
    seen.clear();
    if (more > 0) log.warn({ audit: 'tokensRefused', more }, 'more tokens were rejected');
    more = 0;
  }

  return {
    tokenCreated: ({ id, owner, scopes, expiresAt }) => {
      const expires = expiresAt === null ? 'never' : new Date(expiresAt).toISOString();
      log.info({ audit: 'tokenCreated', token: id, owner, scopes, expires }, 'a token was created');
    },
    tokenRevoked: (id) => {
      log.info({ audit: 'tokenRevoked', token: id }, 'a token was revoked');
    },
    tokenFirstUsed: ({ id, owner }, { requestId, address }) => {
      log.info(
        { audit: 'tokenFirstUsed', token: id, owner, address, requestId },
        'a token was used for the first time',
      );
    },
    tokenRejected: (reason, { id, owner }, { requestId, address }) => {
      if (!mayLog(`${reason} ${id ?? owner ?? address}`)) return;
      log.warn(
        { audit: 'tokenRefused', reason, token: id, owner, address, requestId },
        'a token was rejected',
      );
    },
  };
}
