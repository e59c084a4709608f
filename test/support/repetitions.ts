/** Returns how often a test repeats its check: all the times, or the share of the fast tests (test/fast.env). */
export function repetitions(all: number): number {
  return Math.ceil(all * Number(process.env.REPETITION_SHARE ?? 1));
}
