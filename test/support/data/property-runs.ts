/** Returns the number of runs of a property test: all of them, or the share of the fast tests (test/fast.env). */
export function propertyRuns(all: number): number {
  return Math.ceil(all * Number(process.env.PROPERTY_SHARE ?? 1));
}
