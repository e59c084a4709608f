import { arch, cpus, platform } from 'node:os';
import { join } from 'node:path';
import { medianFsyncMs } from './fsync.ts';
import type { Bench, Report } from './part.ts';

/** What the figures were measured under. */
export function conditionsOf({ generator, connections, plan, folder }: Bench) {
  return {
    generator: generator.name,
    connections,
    ...plan,
    fsyncMs: medianFsyncMs(join(folder, 'fsync')),
    node: process.version,
    system: `${platform()} ${arch()}`,
    cores: cpus().length,
  };
}

/** The same, for people. */
export function describe(conditions: ReturnType<typeof conditionsOf>, reports: readonly Report[]): string {
  const { generator, connections, rounds, seconds, node, system, cores, fsyncMs } = conditions;
  return [
    `${generator}, ${connections} connections; medians of ${rounds} × ${seconds} s, the contenders taking turns`,
    `Node ${node}, ${system}, ${cores} cores; one fsync takes ${fsyncMs.toFixed(2)} ms`,
    `Other processes kept ${describeOthers(reports)} cores busy meanwhile`,
    '÷ it: what the first line reaches of this one, and the range over the rounds',
    'CPU: of the server process and of the generator, microseconds a request',
    '',
  ].join('\n');
}

function describeOthers(reports: readonly Report[]): string {
  const known = reports.flatMap(({ runs }) =>
    runs.flatMap(({ cpu, seconds }) => (cpu ? [{ cpu, seconds }] : [])),
  );
  if (known.length === 0) return '–';
  const busy = known.reduce((sum, { cpu }) => sum + cpu.others, 0);
  return (busy / known.reduce((sum, { seconds }) => sum + seconds, 0)).toFixed(2);
}
