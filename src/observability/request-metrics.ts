import type { Registry } from 'prom-client';
import Histogram from 'prom-client/lib/histogram.js';

/** Counts a request by its status, and for a 5xx by the code of its error too. */
export type RecordRequest = (
  operationId: string,
  status: number,
  seconds: number,
  errorCode?: number,
) => void;

/** Upper bounds of the buckets of durations, in seconds. */
export const DURATION_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** Durations of all requests for one operation with one status, for a 5xx with one error code. */
interface Series {
  readonly labels: { readonly operation: string; readonly status: number; readonly error?: number };
  /**
   * Number of requests in each bucket of DURATION_BUCKETS. The last element counts requests longer than any
   * bucket.
   */
  readonly counts: number[];
  sum: number;
}

/**
 * Counts request durations without `observe` of prom-client, which would take a twentieth of the time of a
 * list request. Passes the counts to prom-client at each scrape.
 */
export function countDurations(registers: Registry[]): RecordRequest {
  const series = new Map<string, Map<number, Series>>();
  new Histogram({
    name: 'plant_store_http_request_duration_seconds',
    help: 'Time to the end of a response, from the end of the request headers, or from the previous response on the connection.',
    labelNames: ['operation', 'status', 'error'],
    buckets: DURATION_BUCKETS,
    registers,
    collect() {
      const all = [...series.values()].flatMap((byStatus) => [...byStatus.values()]);
      Object.assign(this, { hashMap: Object.fromEntries(all.map(toPromClient)) });
    },
  });

  function seriesOf(operation: string, status: number, errorCode: number | undefined): Series {
    const error = status < 500 ? undefined : errorCode;
    const known = series.get(operation)?.get(error ?? status);
    if (known !== undefined) return known;
    const counts = Array.from({ length: DURATION_BUCKETS.length + 1 }, () => 0);
    const labels = { operation, status, ...(error !== undefined && { error }) };
    const created: Series = { labels, counts, sum: 0 };
    const byStatus = series.get(operation) ?? new Map<number, Series>();
    series.set(operation, byStatus.set(error ?? status, created));
    return created;
  }

  return (operation, status, seconds, errorCode) => {
    const one = seriesOf(operation, status, errorCode);
    let bucket = 0;
    while (seconds > (DURATION_BUCKETS[bucket] ?? Number.POSITIVE_INFINITY)) bucket += 1;
    one.counts[bucket] = (one.counts[bucket] ?? 0) + 1;
    one.sum += seconds;
  };
}

/**
 * Converts a series to an entry of `hashMap`, the property in which a prom-client histogram keeps its series.
 */
function toPromClient({ labels, counts, sum }: Series) {
  const bucketValues = Object.fromEntries(DURATION_BUCKETS.map((bound, index) => [bound, counts[index]]));
  const count = counts.reduce((total, one) => total + one, 0);
  return [
    `${labels.operation} ${labels.error ?? labels.status}`,
    { labels, bucketValues, sum, count },
  ] as const;
}
