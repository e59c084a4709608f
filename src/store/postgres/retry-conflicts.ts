import { setTimeout } from 'node:timers/promises';
import { isConflict } from './errors.ts';

const TRIES = 8;
const RETRY_STEP_MS = 5;

/**
 * Calls `work` up to TRIES times: retries after deadlocks, serialization failures and outdated prepared
 * statements.
 */
export async function retryConflicts<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error: unknown) {
      if (!isConflict(error) || tries === TRIES) throw error;
      await setTimeout(Math.random() * RETRY_STEP_MS * 2 ** tries);
    }
  }
}
