export const EVERY_MS = 60_000;

interface KeyExpiry {
  /** Deletes expired keys now, in addition to the timer. */
  now(): void;
  end(): void;
}

/**
 * Deletes expired idempotency keys every minute. An error is reported and the next minute retries; errors after `end`
 * are ignored.
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
