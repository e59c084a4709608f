export const EVERY_MS = 60_000;

interface KeyExpiry {
  /** Deletes expired idempotency keys now, without waiting for the timer. */
  now(): void;
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

  const timer = setInterval(() => void attempt(), EVERY_MS).unref();
  return {
    now: () => void attempt(),
    end: () => {
      isEnded = true;
      clearInterval(timer);
    },
  };
}
