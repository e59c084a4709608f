/** Returns a function that runs up to `limit` tasks at once and queues further tasks. */
export function createGate(limit: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let running = 0;

  return async (work) => {
    if (running >= limit) await new Promise<void>((resolve) => waiting.push(resolve));
    else running += 1;
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) running -= 1;
      else next();
    }
  };
}

export type WaitForPageSlot = () => Promise<void>;

/**
 * Max pages that all lists together read in one event-loop iteration. Each page takes some tenths of a
 * millisecond, and Node accepts one new connection in each iteration.
 */
const PAGES_AT_ONCE = 2;

/** Limits how many lists read a page in one event-loop iteration, so that other requests run in between. */
export function createPageSlots(): WaitForPageSlot {
  const waiting: (() => void)[] = [];

  function admitNext(): void {
    for (const go of waiting.splice(0, PAGES_AT_ONCE)) go();
    if (waiting.length > 0) setImmediate(admitNext);
  }

  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === 1) setImmediate(admitNext);
    });
}
