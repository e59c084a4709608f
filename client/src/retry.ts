const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

/** With a longer `Retry-After` the call fails at once. */
const LONGEST_RETRY_AFTER_MS = 60_000;

/**
 * Milliseconds until the next attempt: `Retry-After` (RFC 9110 §10.2.3) plus a random pause below a limit that doubles each
 * time (full jitter; M. Brooker, Exponential Backoff And Jitter, 2015). Undefined when `Retry-After` is too long.
 */
export function pauseBefore(triesAgain: number, headers: Headers | undefined): number | undefined {
  const asked = retryAfterMs(headers?.get('retry-after') ?? '');
  if (asked > LONGEST_RETRY_AFTER_MS) return undefined;
  return asked + Math.random() * Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** triesAgain);
}

function retryAfterMs(value: string): number {
  if (/^\d+$/.test(value)) return Number(value) * 1_000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? 0 : Math.max(0, at - Date.now());
}

/** Resolves after a time; rejects with the signal's reason once that is aborted. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const end = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', end);
      resolve();
    }, ms);
    signal?.addEventListener('abort', end, { once: true });
  });
}
