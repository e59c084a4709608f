import { type Generator, type Load, runLoad } from './load/generator.ts';
import { readCpuSeconds, readMainThreadCpuSeconds, readPeakBytes, resetPeakBytes } from './process-stats.ts';
import type { RunningSubject } from './subject.ts';
import type { Workload } from './workloads.ts';

/** One run of a workload against a subject. */
export interface Measurement extends Load {
  readonly server: {
    /** CPU seconds of all its threads during the run; undefined, like the others, where there is no /proc. */
    readonly cpuSeconds: number | undefined;
    readonly mainThreadCpuSeconds: number | undefined;
    readonly peakBytes: number | undefined;
  };
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
  const cpu = readCpuSeconds(pid);
  const mainThreadCpu = readMainThreadCpuSeconds(pid);
  const load = await runLoad(
    generator,
    { url, headers, method, target, body, expectedStatus, ids, connections, seconds },
    signal,
  );
  return {
    ...load,
    server: {
      cpuSeconds: difference(readCpuSeconds(pid), cpu),
      mainThreadCpuSeconds: difference(readMainThreadCpuSeconds(pid), mainThreadCpu),
      peakBytes: readPeakBytes(pid),
    },
  };
}

function difference(after: number | undefined, before: number | undefined): number | undefined {
  return after === undefined || before === undefined ? undefined : after - before;
}
