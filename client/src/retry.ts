/**
 * Statuses of transient errors. 408: the request arrived too slowly, and was not executed. 429: too many requests. 502
 * and 504: a proxy gets no valid response from the service. 503: overload, shutdown, or the store is unavailable.
 */
export const TRANSIENT_STATUSES = [408, 429, 502, 503, 504];

/** Max pause before the first retry. It is short: the connection may have been closed while it was idle. */
const FIRST_PAUSE_MS = 100;
/** Four retries wait at least 3.5 s, during which a service restarts. */
const GROWTH = 4;
const LONGEST_PAUSE_MS = 5_000;

/** Max `Retry-After` that is waited for. A longer one fails the call. */
export const LONGEST_RETRY_AFTER_MS = 60_000;

/** Matches a date such as `Sun Nov  6 08:49:37 1994` (RFC 9110 §5.6.7), which is in UTC. */
const ASCTIME = /^\w{3} (\w{3}) +(\d+) ([\d:]+) (\d{4})$/;

/**
 * Returns the milliseconds until a retry; the first retry has the number 1. Adds a random pause to the time
 * in `Retry-After` (RFC 9110 §10.2.3). Returns undefined if `Retry-After` is too long.
 */
export function pauseBefore(retry: number, headers: Headers | undefined): number | undefined {
  const asked = headers === undefined ? 0 : retryAfterMs(headers);
  if (asked > LONGEST_RETRY_AFTER_MS) return undefined;
  return asked + randomPause(retry, Math.random());
}

/**
 * Returns the milliseconds of a random pause for a random number from 0 to 1. Its limit grows with each retry, and at
 * least half of it is waited (equal jitter; M. Brooker, Exponential Backoff And Jitter, 2015).
 */
export function randomPause(retry: number, random: number): number {
  const limit = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * GROWTH ** (retry - 1));
  return (limit * (1 + random)) / 2;
}

/** The longest of several numbers counts: a proxy may have added one. */
function retryAfterMs(headers: Headers): number {
  const value = headers.get('retry-after') ?? '';
  if (/^\d+(?:\s*,\s*\d+)*$/.test(value)) return Math.max(...value.split(',').map(Number)) * 1_000;
  // Both dates are of the server, so the clock of this machine may be wrong.
  const now = timeOf(headers.get('date') ?? '') || Date.now();
  return Math.max(0, timeOf(value) - now) || 0;
}

/** Milliseconds since 1970 of an HTTP date; NaN for another text. */
function timeOf(date: string): number {
  // The obsolete asctime form has no zone, so Date.parse would read it as local time.
  return Date.parse(date.replace(ASCTIME, '$2 $1 $4 $3 GMT'));
}

/** Resolves after `ms` milliseconds. Rejects with the signal's reason if the signal is aborted. */
export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await within(ms, signal, () => new Promise(() => undefined));
}

/**
 * Runs `work` with a time limit and settles as `work` does. Resolves to undefined after `ms` milliseconds.
 * Rejects with the reason of `signal` if `signal` is aborted. Finally aborts the signal passed to `work`;
 * `work` may ignore that signal. Uses setTimeout, which keeps the process alive; AbortSignal.timeout does
 * not.
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
