/** Statistics of response times, in milliseconds. */
export interface Latencies {
  readonly count: number;
  readonly median: number;
  readonly p99: number;
  readonly longest: number;
}

export function latenciesOf(times: readonly number[]): Latencies {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number): number => sorted[Math.ceil(sorted.length * share) - 1] ?? 0;
  return { count: sorted.length, median: at(0.5), p99: at(0.99), longest: at(1) };
}

export function describeLatencies({ count, median, p99, longest }: Latencies): string {
  return `${count}: median ${median.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms, longest ${longest.toFixed(1)} ms`;
}
