/** Returns the value at a quantile of sorted values; 0 for an empty list. */
export function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
}
