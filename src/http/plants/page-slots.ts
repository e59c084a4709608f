/**
 * Max pages, except first ones, that all lists together read in one event-loop iteration. A page takes some tenths of a
 * millisecond, one of long plants some milliseconds. More pages would delay new connections: Node accepts only one in
 * each iteration.
 */
const MAX_PAGES_PER_ITERATION = 2;

/** Limits how many lists read a page in one event-loop iteration, so that other requests run in between. */
export function createPageSlots(): () => Promise<void> {
  const waiting: (() => void)[] = [];

  function admitNext(): void {
    for (const go of waiting.splice(0, MAX_PAGES_PER_ITERATION)) go();
    if (waiting.length > 0) setImmediate(admitNext);
  }

  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === 1) setImmediate(admitNext);
    });
}
