import Counter from 'prom-client/lib/counter.js';
import Gauge from 'prom-client/lib/gauge.js';
import Histogram from 'prom-client/lib/histogram.js';
import Registry from 'prom-client/lib/registry.js';
import type { CommitResult, StoreLoad } from '../store/store.ts';
import { collectProcessMetrics } from './process-metrics.ts';
import { countDurations, DURATION_BUCKETS, type RecordRequest } from './request-metrics.ts';
import { exposeCounter, gauge } from './scraped-metrics.ts';

export interface Metrics {
  readonly registry: Registry;
  readonly answered: RecordRequest;
  /** Counts an HTTP message that was rejected before it reached an operation. */
  rejected(status: number): void;
  /** Counts a failed TLS handshake. */
  handshakeFailed(): void;
  /** Counts a request whose client closed the connection before the response was sent. */
  aborted(operationId: string): void;
  /** Counts bytes of a list that were written to a connection. */
  listed(bytes: number): void;
  /** Counts a token lookup, in the cache or in the store. */
  tokenLookedUp(wasCached: boolean): void;
  /** Exposes the number of tokens in use that expire soon, or have just expired. Calls `count` at each scrape. */
  watchExpiringTokens(count: () => number): void;
  /** Records an ended batch of writes and its duration. */
  committed(writes: number, seconds: number, result: CommitResult): void;
  /** Exposes the keys of the identity provider. Returns functions to call after each read of them. */
  watchKeys(): { read(keys: number): void; unreadable(keysLeft: number): void };
  /** Exposes the number of dropped log lines. */
  watchLog(linesDropped: () => number): void;
  /** Exposes the connections of the public listener. Reads them at each scrape. */
  watchConnections(connections: ConnectionTotals): void;
  /** Exposes the time when the TLS certificate expires. Calls `expiresAt` at each scrape. */
  watchCertificate(expiresAt: () => Date): void;
  /** Exposes the load of a store. Calls `load` at each scrape. */
  watchStore(load: () => StoreLoad): void;
}

interface ConnectionTotals {
  readonly size: number;
  readonly rejected: number;
  readonly closedIncomplete: number;
}

interface MetricsOptions {
  readonly version: string;
  /** The engine of the store. */
  readonly engine: 'sqlite' | 'postgres';
  readonly operationIds: readonly string[];
  /** Milliseconds on the monotonic clock. */
  readonly monotonicNow?: () => number;
}

const BATCH_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];

/**
 * Creates metrics with names by the conventions of Prometheus: base units, `_total` for counters, one prefix
 * for all.
 */
export function createMetrics({
  version,
  engine,
  operationIds,
  monotonicNow = () => performance.now(),
}: MetricsOptions): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectProcessMetrics(registry);
  new Gauge({
    name: 'plant_store_build_info',
    help: 'Always 1; the labels name the version of the service, its store engine and its Node.js version.',
    labelNames: ['version', 'engine', 'node'],
    registers,
  }).set({ version, engine, node: process.versions.node }, 1);
  return {
    registry,
    ...createHttpMetrics(operationIds, registers),
    ...createTokenMetrics(registers),
    ...createCommitMetrics(registers, monotonicNow),
    watchExpiringTokens: (count) =>
      gauge(
        'plant_store_expiring_tokens',
        'Tokens with which this process served requests in the last day, and that expire within a week or have expired since.',
        count,
        registers,
      ),
    watchKeys: () => watchKeys(registers, monotonicNow),
    watchStore: (load) => watchLoad(load, registers),
    watchConnections: (connections) => watchConnections(connections, registers),
    watchCertificate: (expiresAt) =>
      gauge(
        'plant_store_tls_certificate_expiry_timestamp_seconds',
        'Time when the TLS certificate, or one of its intermediates, expires, in seconds since the epoch.',
        () => expiresAt().getTime() / 1_000,
        registers,
      ),
    watchLog: (linesDropped) =>
      exposeCounter(
        'plant_store_log_lines_dropped_total',
        'Log lines dropped because the log could not be written, or its reader was too slow.',
        linesDropped,
        registers,
      ),
  };
}

function createHttpMetrics(
  operationIds: readonly string[],
  registers: Registry[],
): Pick<Metrics, 'answered' | 'rejected' | 'handshakeFailed' | 'aborted' | 'listed'> {
  const rejections = new Counter({
    name: 'plant_store_http_refused_messages_total',
    help: 'HTTP requests that were rejected before they reached an operation, malformed ones included.',
    labelNames: ['status'],
    registers,
  });
  const aborts = new Counter({
    name: 'plant_store_http_aborted_requests_total',
    help: 'Requests whose client reset the connection, or closed it after the whole request, before the response was sent.',
    labelNames: ['operation'],
    registers,
  });
  const failedHandshakes = new Counter({
    name: 'plant_store_tls_failed_handshakes_total',
    help: 'Failed TLS handshakes, including plain HTTP on the TLS port.',
    registers,
  });
  let listBytes = 0;
  exposeCounter(
    'plant_store_list_sent_bytes_total',
    'Bytes of lists that were written to connections.',
    () => listBytes,
    registers,
  );
  // Creates each series with the value zero: otherwise `rate()` of Prometheus misses the first increment.
  for (const operation of operationIds) aborts.inc({ operation }, 0);
  rejections.inc({ status: 400 }, 0);
  return {
    answered: countDurations(registers),
    rejected: (status) => rejections.inc({ status }),
    handshakeFailed: () => failedHandshakes.inc(),
    aborted: (operation) => aborts.inc({ operation }),
    listed: (bytes) => {
      listBytes += bytes;
    },
  };
}

function createTokenMetrics(registers: Registry[]): Pick<Metrics, 'tokenLookedUp'> {
  // Counts in plain numbers: every request looks up a token, and a prom-client Counter is slower.
  let hits = 0;
  let misses = 0;
  new Counter({
    name: 'plant_store_token_lookups_total',
    help: 'Token lookups, by hit or miss of the cache.',
    labelNames: ['cache'],
    registers,
    collect() {
      this.reset();
      this.inc({ cache: 'hit' }, hits);
      this.inc({ cache: 'miss' }, misses);
    },
  });
  return {
    tokenLookedUp: (wasCached) => {
      if (wasCached) hits += 1;
      else misses += 1;
    },
  };
}

function createCommitMetrics(registers: Registry[], monotonicNow: () => number): Pick<Metrics, 'committed'> {
  const durations = new Histogram({
    name: 'plant_store_commit_duration_seconds',
    help: 'Time from the start of a batch of writes until it was durable, had changed nothing, or failed.',
    labelNames: ['result'],
    buckets: DURATION_BUCKETS,
    registers,
  });
  const batches = new Histogram({
    name: 'plant_store_commit_batch_writes',
    help: 'Writes in one batch, which share a transaction and an fsync.',
    buckets: BATCH_BUCKETS,
    registers,
  });
  const failing = gaugeFailures(
    'plant_store_commits_failing_seconds',
    'Time from the first to the last failed batch since a batch last changed something.',
    registers,
    monotonicNow,
  );
  for (const result of ['committed', 'unchanged', 'failed'] satisfies CommitResult[])
    durations.zero({ result });
  return {
    committed: (writes, seconds, result) => {
      durations.observe({ result }, seconds);
      batches.observe(writes);
      if (result !== 'unchanged') failing(result === 'failed');
    },
  };
}

function watchKeys(registers: Registry[], monotonicNow: () => number): ReturnType<Metrics['watchKeys']> {
  const count = new Gauge({
    name: 'plant_store_identity_provider_keys',
    help: 'Keys of the identity provider with which tokens are verified.',
    registers,
  });
  const failing = gaugeFailures(
    'plant_store_identity_provider_failing_seconds',
    'Time from the first to the last failed read of the keys of the identity provider since they were last read.',
    registers,
    monotonicNow,
  );
  return {
    read: (keys) => {
      count.set(keys);
      failing(false);
    },
    unreadable: (keysLeft) => {
      count.set(keysLeft);
      failing(true);
    },
  };
}

/** Exposes the time from the first to the last failure since a success. Returns a function to call after each try. */
function gaugeFailures(
  name: string,
  help: string,
  registers: Registry[],
  monotonicNow: () => number,
): (hasFailed: boolean) => void {
  const failing = new Gauge({ name, help, registers });
  let since: number | undefined;
  return (hasFailed) => {
    const now = monotonicNow();
    since = hasFailed ? (since ?? now) : undefined;
    failing.set((now - (since ?? now)) / 1_000);
  };
}

function watchConnections(connections: ConnectionTotals, registers: Registry[]): void {
  gauge(
    'plant_store_http_connections',
    'Open connections, including those in a TLS handshake.',
    () => connections.size,
    registers,
  );
  exposeCounter(
    'plant_store_http_rejected_connections_total',
    'Connections that were rejected because too many were open.',
    () => connections.rejected,
    registers,
  );
  exposeCounter(
    'plant_store_http_closed_incomplete_requests_total',
    'Incomplete requests that were closed for new connections because too many were open.',
    () => connections.closedIncomplete,
    registers,
  );
}

function watchLoad(load: () => StoreLoad, registers: Registry[]): void {
  const loadGauge = (name: string, help: string, read: (load: StoreLoad) => number): void =>
    gauge(name, help, () => read(load()), registers);
  loadGauge('plant_store_writes_waiting', 'Writes queued for a batch.', ({ writesWaiting }) => writesWaiting);
  loadGauge(
    'plant_store_writes_in_flight',
    'Writes in running batches.',
    ({ writesInFlight }) => writesInFlight,
  );
  loadGauge(
    'plant_store_oldest_batch_seconds',
    'Time since the oldest running batch began; 0 if none runs.',
    ({ oldestBatchMs }) => oldestBatchMs / 1_000,
  );
  loadGauge(
    'plant_store_database_connection_waits',
    'Statements and batches queued for a connection to the database.',
    ({ connections }) => connections.waiting,
  );
  loadGauge(
    'plant_store_wal_bytes',
    'Size of the write-ahead log of the embedded engine; 0 on PostgreSQL.',
    ({ walBytes }) => walBytes,
  );
  new Gauge({
    name: 'plant_store_database_connections',
    help: 'Connections to the database; 0 on the embedded engine.',
    labelNames: ['state'],
    registers,
    collect() {
      const { idle, busy } = load().connections;
      this.set({ state: 'idle' }, idle);
      this.set({ state: 'busy' }, busy);
    },
  });
  exposeCounter(
    'plant_store_checkpoint_failures_total',
    'Failed checkpoints of the embedded engine; 0 on PostgreSQL.',
    () => load().checkpointFailures,
    registers,
  );
  exposeCounter(
    'plant_store_timeline_regressions_total',
    'PostgreSQL primaries whose timeline was older than that of an earlier primary; 0 on the embedded engine.',
    () => load().timelineRegressions,
    registers,
  );
}
