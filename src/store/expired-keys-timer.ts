import type { KeyDeletion } from './store.ts';

export const KEY_EXPIRY_INTERVAL_MS = 60_000;

interface KeyExpiry {
  /** Deletes expired idempotency keys now, without waiting for the timer, unless a deletion is running. */
  runNow(): void;
  end(): void;
}

/**
 * Deletes expired idempotency keys every minute, unless the previous deletion is still running. Reports an error and
 * retries a minute later. Ignores errors after `end` was called.
 */
export function startKeyExpiry(deleteExpired: () => Promise<void>, { onFailure }: KeyDeletion): KeyExpiry {
  let isEnded = false;
  let isRunning = false;

  async function attempt(): Promise<void> {
    if (isRunning) return;
    isRunning = true;
    try {
      await deleteExpired();
    } catch (error: unknown) {
      if (!isEnded) onFailure(error);
    } finally {
      isRunning = false;
    }
  }

  const timer = setInterval(() => void attempt(), KEY_EXPIRY_INTERVAL_MS).unref();
  return {
    runNow: () => void attempt(),
    end: () => {
      isEnded = true;
      clearInterval(timer);
    },
  };
}
