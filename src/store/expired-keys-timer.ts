const EVERY_MS = 60_000;

interface KeyExpiry {
  /** Does it now, too. */
  now(): void;
  end(): void;
}

/**
 * Has old idempotency keys forgotten once a minute. A failure is told and ends nothing, since the next minute is another
 * try; one that comes of the end is nobody's concern.
 */
export function startKeyExpiry(forget: () => Promise<void>, onFailure: (error: unknown) => void): KeyExpiry {
  let isEnded = false;

  async function attempt(): Promise<void> {
    try {
      await forget();
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
