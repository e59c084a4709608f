import { setTimeout } from 'node:timers/promises';

/** Max milliseconds of every wait in the tests, far more than anything takes on a busy machine. */
export const PATIENCE_MS = 60_000;

/** Settings for connections to PostgreSQL, with timeouts for a busy machine. */
export const PATIENT_CONNECTIONS = {
  databaseAcquireTimeout: String(PATIENCE_MS),
  databaseStatementTimeout: String(PATIENCE_MS),
};

/** Waits for a condition that causes no event. Rejects with the last state after {@link PATIENCE_MS}. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  describe: () => string = () => condition.toString(),
): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not within ${PATIENCE_MS} ms: ${describe()}`);
    await setTimeout(10);
  }
}

/**
 * Counts seconds by a timer that fires once a second. However long the machine stalls, that counts as one
 * second. The service counts its timeouts in the same way, so a test can compare them on a busy machine.
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
