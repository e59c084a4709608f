import { type Generator, runLoad, type Tally } from './load/generator.ts';
import { type CpuSeconds, readCpuSeconds, readPeakBytes, resetPeakBytes } from './process-stats.ts';
import type { RunningSubject } from './subject.ts';
import type { Workload } from './workloads.ts';

/** CPU seconds during a run. */
export interface CpuUse {
  readonly server: number;
  readonly serverMainThread: number;
  readonly generator: number;
  /** All that was neither the server nor the generator. */
  readonly others: number;
}

/** One run of a workload against a subject. What is undefined cannot be read where there is no /proc. */
export interface Measurement extends Tally {
  readonly cpu: CpuUse | undefined;
  /** The most memory the server had resident. */
  readonly peakBytes: number | undefined;
}

export interface RunOptions {
  readonly generator: Generator;
  readonly connections: number;
  readonly seconds: number;
  /** Counts the runs of a workload against a subject, so that each has ids of its own. */
  readonly run: number;
  readonly signal: AbortSignal;
}

/** Prepares a subject, puts the load on it, and looks what it took. */
export async function measure(
  subject: RunningSubject,
  workload: Workload,
  { generator, connections, seconds, run, signal }: RunOptions,
): Promise<Measurement> {
  const { method, target, body, expectedStatus } = workload;
  const { url, headers, pid } = subject;
  const ids = workload.ids(run);
  await subject.prepare(workload, ids, seconds);
  resetPeakBytes(pid);
  const before = readCpuSeconds(pid);
  const tally = await runLoad(
    generator,
    { url, headers, method, target, body, expectedStatus, ids, connections, seconds },
    signal,
  );
  const after = readCpuSeconds(pid);
  return { ...tally, cpu: before && after && cpuUse(before, after), peakBytes: readPeakBytes(pid) };
}

function cpuUse(before: CpuSeconds, after: CpuSeconds): CpuUse {
  const server = after.server - before.server;
  const generator = after.generators - before.generators;
  return {
    server,
    serverMainThread: after.serverMainThread - before.serverMainThread,
    generator,
    others: Math.max(0, after.machine - before.machine - server - generator),
  };
}
