import type { StoreOptions, StoreTask } from '../store/store.ts';
import type { EventLog } from './log-events.ts';
import { onceAMinute, REPEAT_MS } from './once-a-minute.ts';

/** Milliseconds without a failure after which a success ends a series of failures: on a full disk, some writes succeed. */
const RECOVERY_MS = 10_000;

/** The state of a task. */
class TaskState {
  /** Number of failures since the last recovery. */
  failures = 0;
  /** Time of the last failure, on the monotonic clock. */
  failedAt = Number.NEGATIVE_INFINITY;
  /** True if one of these failures was logged. */
  isLogged = false;
  /** Time of the last log line about a failure, on the monotonic clock. */
  loggedAt = Number.NEGATIVE_INFINITY;
}

interface StoreLog
  extends Required<
    Pick<
      StoreOptions,
      | 'onTaskEnd'
      | 'onLogLeft'
      | 'keyDeletion'
      | 'onTimelineRegression'
      | 'onSetupFault'
      | 'onDatabaseWarning'
      | 'onLoginRejected'
    >
  > {
  /** Logs immediately the warnings that no line has yet counted. */
  close(): void;
}

/**
 * Logs store events: a failure of a task once a minute, and the recovery from it once the task succeeds without failures,
 * so that a task that fails now and then does not flood the log; warnings and rejected logins of the database once a minute.
 * `now` returns milliseconds of a monotonic clock.
 */
export function logStore(log: EventLog, now: () => number): StoreLog {
  const states: Record<StoreTask, TaskState> = { writes: new TaskState(), checkpoints: new TaskState() };
  const databaseWarnings = onceAMinute((warning, warnings) =>
    log.event('PostgreSQL warns; act on its message', { warning, warnings }),
  );
  const rejectedLogins = onceAMinute((problem, logins) =>
    log.event('PostgreSQL rejects further connections, so requests wait for the open ones; fix the problem', {
      problem,
      logins,
    }),
  );

  function logFailure(task: StoreTask, err: unknown, failures: number): void {
    if (task === 'writes') log.event('writes fail; fix the cause in err', { err, failures });
    else log.event('checkpoints fail, so the write-ahead log grows; check the disk', { err, failures });
  }

  function logRecovery(task: StoreTask, failures: number): void {
    log.event(task === 'writes' ? 'writes succeed again' : 'checkpoints succeed again', { failures });
  }

  return {
    onTaskEnd: (task, failure) => {
      const state = states[task];
      if (failure === undefined) {
        if (state.failures === 0 || now() - state.failedAt < RECOVERY_MS) return;
        if (state.isLogged) logRecovery(task, state.failures);
        state.failures = 0;
        state.isLogged = false;
        return;
      }
      state.failures += 1;
      state.failedAt = now();
      if (now() - state.loggedAt < REPEAT_MS) return;
      state.loggedAt = now();
      state.isLogged = true;
      logFailure(task, failure, state.failures);
    },
    onLogLeft: ({ isSeparated, file, reason }) =>
      log.event(
        isSeparated
          ? 'the write-ahead log may hold acknowledged writes of a store file that is no longer next to it; never open another file with it'
          : 'the write-ahead log could not be emptied and holds acknowledged writes; move and copy it with the store file',
        { file, reason },
      ),
    keyDeletion: {
      onFailure: (err) =>
        log.event('expired idempotency keys were not deleted; retrying within a minute', { err }),
      onClockDifference: (aheadMs) =>
        log.event('the clock is not that of PostgreSQL; synchronize both, for example by NTP', {
          aheadSeconds: Math.round(aheadMs / 1_000),
        }),
    },
    onTimelineRegression: ({ timeline, highest }) =>
      log.event(
        'this PostgreSQL primary has a lower timeline than an earlier one: acknowledged writes may be lost; use the server with the highest timeline',
        { timeline, highest },
      ),
    onSetupFault: (fault) =>
      log.event('PostgreSQL may lose writes, or cannot fail over; correct its setup', { fault }),
    onDatabaseWarning: (warning) => databaseWarnings.report(warning, 1),
    onLoginRejected: (reason) => rejectedLogins.report(reason, 1),
    close: () => {
      databaseWarnings.close();
      rejectedLogins.close();
    },
  };
}
