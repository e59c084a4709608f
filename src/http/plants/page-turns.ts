export type WaitForPageTurn = () => Promise<void>;

/** Pages that are read in one event-loop iteration, of all lists together: one or two milliseconds. */
const PAGES_AT_ONCE = 8;

/** Lets lists read their next pages a few at a time: other requests run between, however many lists there are. */
export function createPageTurns(): WaitForPageTurn {
  const waiting: (() => void)[] = [];

  function giveTurn(): void {
    for (const go of waiting.splice(0, PAGES_AT_ONCE)) go();
    if (waiting.length > 0) setImmediate(giveTurn);
  }

  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === 1) setImmediate(giveTurn);
    });
}
