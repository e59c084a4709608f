import type { Audit, AuditSource } from '../../observability/audit-log.ts';
import type { FoundToken } from '../../token.ts';

const HOUR_MS = 60 * 60 * 1_000;
const DAY_MS = 24 * HOUR_MS;

/** Max tokens that are known at the same time. Further ones are not noticed. */
const MAX_TOKENS = 10_000;

/** Milliseconds before its expiry in which the use of a token is noticed. */
export const NOTICE_MS = 7 * DAY_MS;

/** Min lifetime in milliseconds of a token that is noticed: a shorter-lived one is meant to end soon. */
export const MIN_LIFETIME_MS = 28 * DAY_MS;

/** Milliseconds between two log lines of a token, and since its last use. The program that uses it may run once a day. */
export const LOG_EVERY_MS = 22 * HOUR_MS;
export const IN_USE_MS = 26 * HOUR_MS;

interface ExpiringTokens {
  /** Notes a use of a token at `at`. Logs it, about once a day, if the token expires soon. `sourceOf` returns the request. */
  note(token: FoundToken, at: number, sourceOf: () => AuditSource): void;
  /** Returns how many tokens were used in the day before `at`, and expire soon or have expired since. Drops all others. */
  count(at: number): number;
}

interface Use {
  readonly expiresAt: number;
  lastAt: number;
  loggedAt: number;
}

/**
 * Notices tokens that are in use shortly before they expire, while they can be replaced. Times are milliseconds since the
 * epoch, of a clock that may be set.
 */
export function watchExpiringTokens(audit: Pick<Audit, 'tokenExpiresSoon'>): ExpiringTokens {
  const uses = new Map<string, Use>();

  return {
    note: ({ id, owner, createdAt, expiresAt }, at, sourceOf) => {
      if (expiresAt === null || expiresAt - at > NOTICE_MS || expiresAt - createdAt < MIN_LIFETIME_MS) return;
      const known = uses.get(id);
      if (known === undefined && uses.size >= MAX_TOKENS) return;
      const use = known ?? { expiresAt, lastAt: at, loggedAt: Number.NEGATIVE_INFINITY };
      uses.set(id, use);
      use.lastAt = at;
      if (isWithin(LOG_EVERY_MS, use.loggedAt, at)) return;
      use.loggedAt = at;
      audit.tokenExpiresSoon({ id, owner, expiresAt }, sourceOf());
    },
    count: (at) => {
      for (const [id, { expiresAt, lastAt }] of uses)
        if (expiresAt - at > NOTICE_MS || !isWithin(IN_USE_MS, lastAt, at)) uses.delete(id);
      return uses.size;
    },
  };
}

function isWithin(ms: number, time: number, at: number): boolean {
  return Math.abs(at - time) < ms;
}
