/** Max milliseconds by which two clocks count as equal. Synchronized ones differ by less than a second. */
const TOLERANCE_MS = 10_000;

/**
 * Returns a function that compares a time of the server's clock with those of this machine's clock just before and after it,
 * all in milliseconds since the epoch. Reports how far this machine's clock is ahead (negative: behind) when the difference
 * begins to exceed the tolerance.
 */
export function watchClocks(
  report: (aheadMs: number) => void,
): (ofServer: number, before: number, after: number) => void {
  let isReported = false;
  return (ofServer, before, after) => {
    const aheadMs = ofServer < before ? before - ofServer : Math.min(after - ofServer, 0);
    const areEqual = Math.abs(aheadMs) <= TOLERANCE_MS;
    if (!areEqual && !isReported) report(aheadMs);
    isReported = !areEqual;
  };
}
