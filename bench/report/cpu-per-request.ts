import type { Runs } from '../compare.ts';
import { percentile } from '../load/percentile.ts';

/**
 * The reported CPU time per request is this quantile of all slices of 1,000 requests. The quantile is low,
 * since other programs make some slices look expensive. They evict caches and, in a virtual machine, their
 * time counts as the server's.
 */
const UNDISTURBED = 0.1;

/**
 * Returns a quantile of the CPU time per request, in microseconds; undefined without a complete slice of
 * requests.
 */
export function cpuOf({ runs }: Runs, share = UNDISTURBED): number | undefined {
  const slices = runs.flatMap(({ usage }) => usage?.microseconds ?? []).sort((a, b) => a - b);
  return slices.length === 0 ? undefined : percentile(slices, share);
}

/** Returns the CPU time per request relative to that of another contender. */
export function cpuRatio(one: Runs | undefined, other: Runs | undefined): number | undefined {
  const [cpu, reference] = [one, other].map((runs) => runs && cpuOf(runs));
  return cpu === undefined || reference === undefined ? undefined : cpu / reference;
}
