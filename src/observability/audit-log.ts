import type { Token } from '../token.ts';

/** The part of a log that takes audit events. */
interface AuditLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

/** Where a request came from. */
export interface Origin {
  readonly requestId: string;
  /** The IP address of the client. */
  readonly address: string;
}

type RejectionReason = 'unknown' | 'expired' | 'revoked' | 'insufficientScope';

/** What happens to tokens, for whoever has to answer for it later; each event is a line with a field `audit`. */
export interface Audit {
  tokenCreated(token: Token): void;
  tokenRevoked(id: string): void;
  tokenFirstUsed(token: Pick<Token, 'id' | 'owner'>, origin: Origin): void;
  /** A token was shown that opens nothing, or not this. `token` is what is known of it. */
  tokenRefused(reason: RejectionReason, token: Partial<Pick<Token, 'id' | 'owner'>>, origin: Origin): void;
}

/** One line for each token and reason, and for each address that guesses, in this time. */
const WINDOW_MS = 60_000;
const LINES_IN_WINDOW = 100;

/** An audit that writes to a log. Refusals are limited there, since anybody can cause them. */
export function createAudit(log: AuditLog): Audit {
  const seen = new Set<string>();
  let more = 0;

  function mayLog(key: string): boolean {
    if (seen.size === 0) setTimeout(endWindow, WINDOW_MS).unref();
    if (seen.has(key) || seen.size >= LINES_IN_WINDOW) {
      more += 1;
      return false;
    }
    seen.add(key);
    return true;
  }

  function endWindow(): void {
    seen.clear();
    if (more > 0) log.warn({ audit: 'tokensRefused', more }, 'more uses of tokens were refused');
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
    tokenRefused: (reason, { id, owner }, { requestId, address }) => {
      if (!mayLog(`${reason} ${id ?? owner ?? address}`)) return;
      log.warn(
        { audit: 'tokenRefused', reason, token: id, owner, address, requestId },
        'the use of a token was refused',
      );
    },
  };
}
