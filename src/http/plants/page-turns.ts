export type WaitForPageSlot = () => Promise<void>;

/** Pages that are read in one event-loop iteration, of all lists together: one or two milliseconds. */
const PAGES_AT_ONCE = 8;

/** Lets lists read their next pages a few at a time: other requests run between, however many lists there are. */
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
