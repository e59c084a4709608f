import { arch, cpus, platform } from 'node:os';
import { join } from 'node:path';
import type { Bench, Report } from '../scenarios/scenario.ts';
import { measureStalls } from './cpu-stalls.ts';
import { medianFsyncMs } from './fsync-latency.ts';

/** Returns the conditions of a measurement, such as settings and machine. */
export async function conditionsOf({ generator, connections, plan, folder }: Bench) {
  return {
    generator: generator.name,
    connections,
    ...plan,
    stalls: await measureStalls(),
    fsyncMs: medianFsyncMs(join(folder, 'fsync')),
    node: process.version,
    system: `${platform()} ${arch()}`,
    cores: cpus().length,
  };
}

export function describe(conditions: Awaited<ReturnType<typeof conditionsOf>>): string {
  const { generator, connections, rounds, seconds, node, system, cores, fsyncMs, stalls } = conditions;
  return [
    `${generator}, ${connections} connections; medians of ${rounds} × ${seconds} s, the contenders taking turns`,
    `Node ${node}, ${system}, ${cores} cores; one fsync takes ${fsyncMs.toFixed(2)} ms`,
    `A busy thread stalls for up to ${stalls.longestMs.toFixed(1)} ms, and for ${(stalls.share * 100).toFixed(1)} % of the time`,
    '÷ it: the first line divided by this one, and the range over the rounds',
    'CPU: of the server process and of the generator, microseconds per request',
    '',
  ].join('\n');
}

/** Formats the CPU use of other processes. High use makes the figures of the benchmark unreliable. */
export function describeOthers(reports: readonly Report[]): string {
  const runs = reports.flatMap(({ contenders }) => contenders.flatMap((contender) => contender.runs));
  const known = runs.flatMap(({ cpu, seconds }) =>
    cpu?.others === undefined ? [] : [{ others: cpu.others, seconds }],
  );
  const busy = known.reduce((sum, { others }) => sum + others, 0);
  const cores = busy / known.reduce((sum, { seconds }) => sum + seconds, 0);
  return known.length === 0
    ? 'The CPU use of other processes is unknown.'
    : `Other processes used ${cores.toFixed(2)} cores meanwhile.`;
}
