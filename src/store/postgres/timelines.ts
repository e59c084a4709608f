import type { TimelineRegression } from '../store.ts';

/**
 * Query for the timeline of a primary: a number with eight hexadecimal digits that grows at each failover.
 * Returns NULL on a standby; fails on servers without timelines.
 */
export const FIND_TIMELINE = `SELECT CASE WHEN current_setting('in_hot_standby', true) = 'off'
                                          THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline`;

/**
 * Detects a connection to an outdated primary. PostgreSQL increases the number of its timeline at each
 * failover. So a primary is outdated if its number is lower than that of a primary seen before.
 */
export interface Timelines {
  note(timeline: unknown): void;
  /** Number of primaries whose timeline was lower than that of a primary seen before. */
  regressions(): number;
}

export function watchTimelines(onRegression: (regression: TimelineRegression) => void): Timelines {
  let highest = 0;
  let last = 0;
  let regressions = 0;
  return {
    note(digits) {
      const timeline = typeof digits === 'string' ? Number.parseInt(digits, 16) : 0;
      if (!(timeline > 0) || timeline === last) return;
      last = timeline;
      if (timeline < highest) {
        regressions += 1;
        onRegression({ timeline, highest });
      }
      highest = Math.max(highest, timeline);
    },
    regressions: () => regressions,
  };
}
