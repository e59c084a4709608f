const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

/** A service that asks for more patience than this gets none: the caller is told instead. */
const LONGEST_RETRY_AFTER_MS = 60_000;

/**
 * Milliseconds to wait before the next try: random up to a bound that doubles with each (full jitter; M. Brooker,
 * Exponential Backoff And Jitter, 2015), behind what `Retry-After` (RFC 9110 §10.2.3) asks for. Undefined when that is too long.
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
