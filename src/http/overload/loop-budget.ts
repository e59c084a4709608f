/** Handler time per event-loop iteration before the thread reads new input, in milliseconds. */
const BUDGET_MS = 5;
/** Max queued requests started in one iteration. */
const MAX_STARTED = 64;

/** Returns undefined if a request may run at once; otherwise a promise that resolves when it may. */
export type WaitForSlot = () => Promise<void> | undefined;

/**
 * Limits handler time per event-loop iteration to 5 ms and queues the rest. Queued requests are counted as in flight;
 * unread in the buffers of their connections they would not be.
 */
export function createLoopBudget(): WaitForSlot {
  const waiting: (() => void)[] = [];
  let began: number | undefined;
  let atOnce = 1;

  function begin(now: number): void {
    began = now;
    setImmediate(end, now);
  }

  function end(since: number): void {
    const now = performance.now();
    atOnce = now - since < BUDGET_MS ? Math.min(atOnce * 2, MAX_STARTED) : Math.max(1, atOnce >> 1);
    began = undefined;
    if (waiting.length === 0) return;
    begin(now);
    for (const go of waiting.splice(0, atOnce)) go();
  }

  return () => {
    const now = performance.now();
    if (began === undefined) begin(now);
    else if (waiting.length > 0 || now - began > BUDGET_MS)
      return new Promise((resolve) => waiting.push(resolve));
    return undefined;
  };
}
