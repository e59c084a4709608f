/** How long the thread goes on with requests before it looks at what has arrived meanwhile, in milliseconds. */
const TURN_MS = 5;
const MOST_AT_ONCE = 64;

/** Undefined when a request may be carried out at once; otherwise what resolves when it is its turn. */
export type WaitForSlot = () => Promise<void> | undefined;

/**
 * Shares a thread among requests that keep it busy: when those of one turn of the event loop have had their time, the
 * next ones wait in line, where they can be counted, instead of unseen in the buffers of their connections.
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
    atOnce = now - since < TURN_MS ? Math.min(atOnce * 2, MOST_AT_ONCE) : Math.max(1, atOnce >> 1);
    began = undefined;
    if (waiting.length === 0) return;
    begin(now);
    for (const go of waiting.splice(0, atOnce)) go();
  }

  return () => {
    const now = performance.now();
    if (began === undefined) begin(now);
    else if (waiting.length > 0 || now - began > TURN_MS)
      return new Promise((resolve) => waiting.push(resolve));
    return undefined;
  };
}
