export const KEY_EXPIRY_INTERVAL_MS = 60_000;

interface KeyExpiry {
  /** Deletes expired idempotency keys now, without waiting for the timer. */
  runNow(): void;
  end(): void;
}

/**
 * Deletes expired idempotency keys every minute. Reports an error and retries a minute later. Ignores errors
 * after `end` was called.
 */
export function startKeyExpiry(
  deleteExpired: () => Promise<void>,
  onFailure: (error: unknown) => void,
): KeyExpiry {
  let isEnded = false;

  async function attempt(): Promise<void> {
    try {
      await deleteExpired();
    } catch (error: unknown) {
      if (!isEnded) onFailure(error);
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
