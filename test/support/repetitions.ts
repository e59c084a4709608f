/**
 * Returns how often a test repeats its check. The fast tests do only a share of all repetitions
 * (test/fast.env).
 */
export function repetitions(all: number): number {
  return Math.ceil(all * Number(process.env.REPETITION_SHARE ?? 1));
}
