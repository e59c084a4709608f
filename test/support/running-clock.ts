import type { TestContext } from 'node:test';

/** Timers are late by less than this many milliseconds. */
const STEP_MS = 10;

interface RunningClock {
  /** Lets time pass in which the process runs. */
  run(ms: number): void;
  /** Lets time pass in which the process is suspended: its timers are due when it goes on. */
  suspend(ms: number): void;
}

/** Replaces `setTimeout` and `performance.now` for one test. Their time passes only by the returned functions. */
export function mockRunningClock({ mock }: TestContext): RunningClock {
  mock.timers.enable({ apis: ['setTimeout'] });
  let now = 0;
  mock.method(performance, 'now', () => now);
  const pass = (ms: number): void => {
    now += ms;
    mock.timers.tick(ms);
  };
  return {
    run(ms) {
      for (let left = ms; left > 0; left -= STEP_MS) pass(Math.min(left, STEP_MS));
    },
    suspend: pass,
  };
}
