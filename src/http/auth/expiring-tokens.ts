import { LRUCache } from 'lru-cache';
import type { Audit } from '../../observability/audit-log.ts';
import type { FoundToken } from '../../token.ts';

/** Max tokens whose uses are known. */
const MAX_TOKENS = 10_000;

const DAY_MS = 24 * 60 * 60 * 1_000;

/** Milliseconds before its expiry in which the use of a token is noticed. */
export const NOTICE_MS = 7 * DAY_MS;

/** Min lifetime in milliseconds of a token that is noticed. Programs replace shorter-lived ones themselves. */
export const MIN_LIFETIME_MS = 28 * DAY_MS;

interface ExpiringTokens {
  /** Notes a use of a token at `at`. Logs it, up to once a day, if the token expires soon. */
  note(token: FoundToken, at: number): void;
  /** Returns how many tokens that expire soon were used in the day before `at`. */
  count(at: number): number;
}

interface Use {
  readonly expiresAt: number;
  lastAt: number;
  loggedAt: number;
}

/** Notices tokens that are in use shortly before they expire, while they can be replaced. Times are milliseconds since the epoch. */
export function watchExpiringTokens(audit: Pick<Audit, 'tokenExpiresSoon'>): ExpiringTokens {
  const uses = new LRUCache<string, Use>({ max: MAX_TOKENS });

  return {
    note: ({ id, owner, createdAt, expiresAt }, at) => {
      if (expiresAt === null || expiresAt - at > NOTICE_MS || expiresAt - createdAt < MIN_LIFETIME_MS) return;
      const use = uses.get(id) ?? { expiresAt, lastAt: at, loggedAt: Number.NEGATIVE_INFINITY };
      uses.set(id, use);
      use.lastAt = at;
      if (at - use.loggedAt < DAY_MS) return;
      use.loggedAt = at;
      audit.tokenExpiresSoon({ id, owner, expiresAt });
    },
    count: (at) =>
      [...uses.values()].filter(({ expiresAt, lastAt }) => at < expiresAt && at - lastAt < DAY_MS).length,
  };
}
