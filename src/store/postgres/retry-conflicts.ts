import { setTimeout } from 'node:timers/promises';
import { isConflict, isStalePlan } from './errors.ts';

const TRIES = 8;
const RETRY_STEP_MS = 5;

/**
 * Calls `work` up to TRIES times: retries after deadlocks and serialization failures. A retry after an outdated prepared
 * statement does not count: such an error closes its connection, and all those of the pool may have one.
 */
export async function retryConflicts<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; ) {
    try {
      return await work();
    } catch (error: unknown) {
      if (isStalePlan(error)) continue;
      if (!isConflict(error) || tries === TRIES) throw error;
      await setTimeout(Math.random() * RETRY_STEP_MS * 2 ** tries);
      tries += 1;
    }
  }
}
