import { readdirSync } from 'node:fs';
import type { Registry } from 'prom-client';
import Gauge from 'prom-client/lib/gauge.js';
import eventLoopLag from 'prom-client/lib/metrics/eventLoopLag.js';
import gc from 'prom-client/lib/metrics/gc.js';
import heapSizeAndUsed from 'prom-client/lib/metrics/heapSizeAndUsed.js';
import heapSpacesSizeAndUsed from 'prom-client/lib/metrics/heapSpacesSizeAndUsed.js';
import osMemoryHeap from 'prom-client/lib/metrics/osMemoryHeap.js';
import processHandles from 'prom-client/lib/metrics/processHandles.js';
import processMaxFileDescriptors from 'prom-client/lib/metrics/processMaxFileDescriptors.js';
import processRequests from 'prom-client/lib/metrics/processRequests.js';
import processResources from 'prom-client/lib/metrics/processResources.js';
import processStartTime from 'prom-client/lib/metrics/processStartTime.js';
import version from 'prom-client/lib/metrics/version.js';
import { codeOf } from '../thrown-errors.ts';
import { exposeCounter } from './scraped-metrics.ts';

// The default metrics of prom-client, except CPU time and open files. prom-client's file for CPU time would load
// OpenTelemetry, and its number of open files stands still when none is left.
const DEFAULT_METRICS = [
  processStartTime,
  osMemoryHeap,
  processMaxFileDescriptors,
  eventLoopLag,
  processResources,
  processHandles,
  processRequests,
  heapSizeAndUsed,
  heapSpacesSizeAndUsed,
  version,
  gc,
];

/** Registers the metrics of the process and of Node, with the names of prom-client. */
export function collectProcessMetrics(registry: Registry): void {
  const countCpuTime = (name: string, parts: string, microseconds: (cpu: NodeJS.CpuUsage) => number): void =>
    exposeCounter(
      name,
      `Total ${parts} CPU time spent in seconds.`,
      () => microseconds(process.cpuUsage()) / 1e6,
      [registry],
    );
  countCpuTime('process_cpu_user_seconds_total', 'user', ({ user }) => user);
  countCpuTime('process_cpu_system_seconds_total', 'system', ({ system }) => system);
  countCpuTime('process_cpu_seconds_total', 'user and system', ({ user, system }) => user + system);
  if (process.platform === 'linux') countOpenFiles(registry);
  for (const collect of DEFAULT_METRICS) collect(registry, { eventLoopMonitoringPrecision: 10 });
}

function countOpenFiles(registry: Registry): void {
  new Gauge({
    name: 'process_open_fds',
    help: 'Number of open file descriptors.',
    registers: [registry],
    async collect() {
      try {
        // Excludes the descriptor of this read.
        this.set(readdirSync('/proc/self/fd').length - 1);
      } catch (error: unknown) {
        if (!['EMFILE', 'ENFILE'].includes(codeOf(error))) return;
        const max = await registry.getSingleMetric('process_max_fds')?.get();
        this.set(max?.values[0]?.value ?? 0);
      }
    },
  });
}
