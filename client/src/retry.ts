/** Transient: too many requests, a proxy without a running service, overload, shutdown. */
export const TRANSIENT_STATUSES = [429, 502, 503, 504];

/** Half of the limit of the first pause. */
export const BASE_PAUSE_MS = 50;
export const LONGEST_PAUSE_MS = 5_000;

/** With a longer `Retry-After` the call fails at once. */
export const LONGEST_RETRY_AFTER_MS = 60_000;

/**
 * Milliseconds until a retry, the first being 1: `Retry-After` (RFC 9110 §10.2.3) plus a random pause below a limit that
 * doubles each time (full jitter; M. Brooker, Exponential Backoff And Jitter, 2015). Undefined when `Retry-After` is too
 * long.
 */
export function pauseBefore(retry: number, headers: Headers | undefined): number | undefined {
  const asked = retryAfterMs(headers?.get('retry-after') ?? '');
  if (asked > LONGEST_RETRY_AFTER_MS) return undefined;
  return asked + Math.random() * Math.min(LONGEST_PAUSE_MS, BASE_PAUSE_MS * 2 ** retry);
}

function retryAfterMs(value: string): number {
  if (/^\d+$/.test(value)) return Number(value) * 1_000;
  return Math.max(0, Date.parse(value) - Date.now()) || 0;
}

/** Resolves after a time; rejects with the signal's reason once that is aborted. */
export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await within(ms, signal, () => new Promise(() => undefined));
}

/**
 * Settles as `work` does, or resolves to undefined after a time, or rejects with the reason of the signal. `work` gets a
 * signal of the end, and may ignore it. The timer keeps a process alive, which AbortSignal.timeout does not.
 */
export async function within<T>(
  ms: number,
  signal: AbortSignal | undefined,
  work: (end: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  signal?.throwIfAborted();
  const end = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let abort = (): void => undefined;
  const ended = new Promise<undefined>((resolve, reject) => {
    timer = setTimeout(() => resolve(undefined), ms);
    abort = () => reject(signal?.reason);
    signal?.addEventListener('abort', abort);
  });
  try {
    return await Promise.race([work(end.signal), ended]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
    end.abort();
  }
}
