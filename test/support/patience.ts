import { setTimeout } from 'node:timers/promises';

/**
 * Max milliseconds of every wait in the tests, far more than a busy machine needs. Shorter than
 * `--test-timeout` in package.json, so that the error message names the wait that failed.
 */
export const PATIENCE_MS = 60_000;

/** Settings for connections to PostgreSQL, with timeouts for a busy machine. */
export const PATIENT_CONNECTIONS = {
  databaseAcquireTimeout: String(PATIENCE_MS),
  databaseStatementTimeout: String(PATIENCE_MS),
};

/** Polls a condition that no event reports. Rejects with the last state after `maxMs`. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  describe: () => string = () => condition.toString(),
  maxMs = PATIENCE_MS,
): Promise<void> {
  const deadline = performance.now() + maxMs;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not within ${maxMs} ms: ${describe()}`);
    await setTimeout(10);
  }
}

/**
 * Counts seconds by a timer that fires once a second. A stall of the machine counts as one second, however
 * long it is. The service counts its timeouts in the same way, so tests can compare them with this count.
 */
export function countSeconds(): { readonly passed: number } & Disposable {
  let passed = 0;
  const timer = setInterval(() => {
    passed += 1;
  }, 1_000);
  return {
    get passed() {
      return passed;
    },
    [Symbol.dispose]: () => clearInterval(timer),
  };
}
