/** Min milliseconds between two measurements. */
const PERIOD_MS = 50;

/** Min share of time in which a busy event loop runs code. */
const BUSY_SHARE = 0.5;

/**
 * Creates a function that returns whether the event loop of this thread was busy in the last measured period. Calls measure
 * periods of at least PERIOD_MS.
 */
export function watchEventLoop(): () => boolean {
  let from = performance.eventLoopUtilization();
  let nextAt = performance.now() + PERIOD_MS;
  let isBusy = false;
  return () => {
    const now = performance.now();
    if (now < nextAt) return isBusy;
    nextAt = now + PERIOD_MS;
    const until = performance.eventLoopUtilization();
    isBusy = performance.eventLoopUtilization(until, from).utilization >= BUSY_SHARE;
    from = until;
    return isBusy;
  };
}
