import type { StoreOptions, StoreTask } from '../store/store.ts';
import type { EventLog } from './log-events.ts';

/** Milliseconds between log lines about a task that keeps failing, and about warnings of the database. */
const REPEAT_MS = 60_000;

interface Failing {
  /** Number of failures since the task last succeeded. */
  failures: number;
  /** Time of the last log line about the task, on the monotonic clock. */
  loggedAt: number;
}

/**
 * Logs store events: the first failure of a task, then one line a minute while it fails, and the recovery; one
 * warning of the database a minute.
 */
export function logStore(
  log: EventLog,
  now: () => number = () => performance.now(),
): Required<Pick<StoreOptions, 'onTaskEnd' | 'keyDeletion' | 'onTimelineRegression' | 'onDatabaseWarning'>> {
  const failing = new Map<StoreTask, Failing>();
  let warnings = 0;
  let warnedAt = Number.NEGATIVE_INFINITY;

  function logFailure(task: StoreTask, err: unknown, failures: number): void {
    if (task === 'writes') log.event('writes fail; free disk space or check the database', { err, failures });
    else log.event('checkpoints fail, so the write-ahead log grows; check the disk', { err, failures });
  }

  function logRecovery(task: StoreTask, failures: number): void {
    log.event(task === 'writes' ? 'writes succeed again' : 'checkpoints succeed again', { failures });
  }

  return {
    onTaskEnd: (task, failure) => {
      const state = failing.get(task);
      if (failure === undefined) {
        if (state === undefined) return;
        failing.delete(task);
        logRecovery(task, state.failures);
      } else if (state === undefined) {
        failing.set(task, { failures: 1, loggedAt: now() });
        logFailure(task, failure, 1);
      } else {
        state.failures += 1;
        if (now() - state.loggedAt < REPEAT_MS) return;
        state.loggedAt = now();
        logFailure(task, failure, state.failures);
      }
    },
    keyDeletion: {
      onFailure: (err) =>
        log.event('expired idempotency keys were not deleted; retrying within a minute', { err }),
    },
    onTimelineRegression: ({ timeline, highest }) =>
      log.event(
        'this PostgreSQL primary has a lower timeline than the previous one: acknowledged writes may be lost; use the server with the highest timeline',
        { timeline, highest },
      ),
    onDatabaseWarning: (warning) => {
      warnings += 1;
      if (now() - warnedAt < REPEAT_MS) return;
      log.event('PostgreSQL warns; act on its message', { warning, warnings });
      warnings = 0;
      warnedAt = now();
    },
  };
}
