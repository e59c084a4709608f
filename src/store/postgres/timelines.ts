import type { TimelineRegression } from '../store.ts';

/**
 * Query for the timeline number of a primary, as eight hexadecimal digits. The number grows at each failover.
 * Returns NULL on a standby. Fails on servers that are compatible with PostgreSQL but have no timelines.
 */
export const FIND_TIMELINE = `SELECT CASE WHEN current_setting('in_hot_standby', true) = 'off'
                                          THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline`;

/**
 * Detects a connection to an outdated primary. PostgreSQL increases the timeline number at each failover. A
 * primary is outdated if its timeline number is lower than the highest number seen before.
 */
export interface Timelines {
  note(timeline: unknown): void;
  /**
   * Number of times that an outdated primary was found. Successive connections with the same timeline count
   * once.
   */
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
