import { setTimeout } from 'node:timers/promises';
import { isWorthRetrying } from './errors.ts';

const TRIES = 8;
const RETRY_STEP_MS = 5;

/**
 * Retries `work` after deadlocks, serialization failures and outdated prepared statements, up to TRIES
 * attempts.
 */
export async function retrying<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error: unknown) {
      if (!isWorthRetrying(error) || tries === TRIES) throw error;
      await setTimeout(Math.random() * RETRY_STEP_MS * 2 ** tries);
    }
  }
}
