import { peakMemory, resetPeakMemory } from '../../test/support/process-resources.ts';
import { type Generator, runLoad } from '../load/generator.ts';
import type { Workload } from '../workload.ts';
import type { Contender, CpuUse } from './contender.ts';
import { type CpuSeconds, readCpuSeconds } from './process-stats.ts';
import type { RunningSubject } from './subject.ts';

/** Settings of the load generator. */
export interface LoadOptions {
  readonly generator: Generator;
  readonly connections: number;
  readonly signal: AbortSignal;
}

/** Creates a contender, which measures a server under a workload. */
export function httpContender(
  { name, running }: { readonly name: string; readonly running: RunningSubject },
  workload: Workload,
  { generator, connections, signal }: LoadOptions,
): Contender {
  const { url, headers, secretsFile, pid } = running;
  return {
    name,
    measure: async (run, seconds) => {
      const ids = workload.ids(run);
      await running.prepare(workload, ids, seconds);
      const requests = workload.requests.map((request) => ({
        ...request,
        target: running.targetOf(request.target),
      }));
      // Ignores the error: if the server has ended, the requests below fail.
      await resetPeakMemory(running).catch(() => undefined);
      await running.usage();
      const before = readCpuSeconds(pid);
      const result = await runLoad(
        generator,
        { url, headers, secretsFile, requests, ids, connections, seconds },
        signal,
      );
      const after = readCpuSeconds(pid);
      const cpu = before && after && cpuUse(before, after, generator.threads, result.cpuSeconds);
      return {
        ...result,
        cpu,
        peakBytes: await peakMemory(running).catch(() => undefined),
        usage: await running.usage(),
      };
    },
  };
}

function cpuUse(
  before: CpuSeconds,
  after: CpuSeconds,
  generatorThreads: number,
  generatorLoad: number | undefined,
): CpuUse {
  const server = after.server - before.server;
  const generator = after.generators - before.generators;
  return {
    server,
    serverMainThread: after.serverMainThread - before.serverMainThread,
    generator: generatorLoad ?? generator,
    generatorThreads,
    others: Math.max(0, after.machine - before.machine - server - generator),
  };
}
