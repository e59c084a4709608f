/** Max milliseconds that count from one look at the clock to the next. Without a pause, looks are half of this apart. */
const MAX_STEP_MS = 500;

/** Settles as the event does, or resolves after `ms` milliseconds in which the process has run. */
export async function within(ms: number, event: Promise<void>): Promise<void> {
  const { promise: deadline, resolve } = Promise.withResolvers<void>();
  const cancel = afterRunning(ms, resolve);
  try {
    await Promise.race([event, deadline]);
  } finally {
    cancel();
  }
}

/**
 * Calls `work` once the process has run for `ms` milliseconds. Longer pauses of the process, such as a suspension, count
 * as half a second, so that the process can then read what arrived meanwhile. Returns a function that cancels the call.
 * Does not keep the process alive.
 */
export function afterRunning(ms: number, work: () => void): () => void {
  let left = ms;
  let seenAt = performance.now();
  let timer = setTimeout(look, Math.min(left, MAX_STEP_MS / 2)).unref();

  function look(): void {
    const now = performance.now();
    left -= Math.min(now - seenAt, MAX_STEP_MS);
    seenAt = now;
    if (left <= 0) work();
    else timer = setTimeout(look, Math.min(left, MAX_STEP_MS / 2)).unref();
  }

  return () => clearTimeout(timer);
}
