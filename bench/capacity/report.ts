import { median } from '../report/figures.ts';
import { decimals, mebibytes, renderTable, type Table, whole } from '../report/table.ts';
import { otherCoresOf, type Sample } from './calibrate.ts';
import type { Measured } from './measure.ts';
import type { Plan } from './model.ts';
import type { Saturation } from './saturation.ts';
import type { Result, Use } from './simulate.ts';

const percent = (share: number): string => `${whole(share * 100)} %`;

/**
 * Tabulates the resources that a thousand requests use on each engine, and the memory and connections of an
 * instance.
 */
export function describeUsage(engines: readonly Measured[]): string {
  const perRequests: Table = [
    [
      'per 1,000 requests',
      'service CPU, ms',
      'database CPU, ms',
      'log, KB',
      'store, KB',
      'written by the store, KB',
    ],
    ...engines.flatMap(({ calibration: { engine }, usage }) =>
      usage.map((one) => [
        `  ${one.kind}, ${engine}`,
        whole(one.serviceCpuMs),
        engine === 'sqlite' ? 'in service' : whole(one.databaseCpuMs),
        ...[one.logBytes, one.storeBytes, one.writtenBytes].map((bytes) => whole(bytes / 1_000)),
      ]),
    ),
  ];
  const perInstance: Table = [
    ['an instance', 'MiB at rest', 'MiB after load', 'connections to the database under load'],
    ...engines.map(({ calibration: { engine }, residentBytes, databaseConnections }) => [
      `  ${engine}`,
      mebibytes(residentBytes.atRest),
      mebibytes(residentBytes.loaded),
      whole(databaseConnections),
    ]),
  ];
  return `${renderTable(perRequests)}\n${renderTable(perInstance)}`;
}

/** One round of a load, with the throughput that the simulation predicts for it. */
interface Compared {
  readonly sample: Sample;
  readonly predicted: number;
}

/**
 * Returns the relative error of each round's prediction. Predictions differ, since they include each round's
 * CPU use of other processes.
 */
function errorsOf(rounds: readonly Compared[]): readonly number[] {
  return rounds.map(({ sample, predicted }) => predicted / sample.load.perSecond - 1);
}

/** Returns the median relative error over the rounds. */
export function errorOf(rounds: readonly Compared[]): number {
  return median(errorsOf(rounds));
}

/** Tabulates the measured and the predicted throughput. */
export function describeCheck(loads: readonly (readonly Compared[])[]): string {
  return renderTable([
    [
      'requests a second',
      'measured',
      'predicted',
      'median error (each round)',
      'CPU µs per request',
      'cores used by others',
    ],
    ...loads.map((rounds) => [
      nameOf(rounds),
      whole(median(rounds.map(({ sample }) => sample.load.perSecond))),
      whole(median(rounds.map(({ predicted }) => predicted))),
      `${percent(errorOf(rounds))} (${errorsOf(rounds).map(percent).join(', ')})`,
      whole(median(rounds.map(({ sample }) => cpuUsOf(sample)))),
      decimals(2)(median(rounds.map(({ sample }) => otherCoresOf(sample.load)))),
    ]),
  ]);
}

function nameOf([first]: readonly Compared[]): string {
  if (first === undefined) return '';
  const { kind, instances } = first.sample;
  return `  ${kind}, ${instances} ${instances === 1 ? 'instance' : 'instances'}`;
}

function cpuUsOf({ load: { cpu, answers } }: Sample): number {
  return ((cpu.main + cpu.background + cpu.database + cpu.generators) / answers) * 1e6;
}

/** Describes a plan in two lines. */
export function describePlan(plan: Plan): string {
  const { engine, instances, nodes, owners, skew, creates, cores, layout } = plan;
  const machines = layout === 'shared' ? 'one machine' : 'machines';
  return [
    `${engine}, instances: ${instances}, database nodes: ${nodes}, owners: ${whole(owners)} (Zipf ${skew})`,
    `${percent(creates)} creates, the others lists of 20; ${machines} of ${cores} cores; seed ${plan.seed}`,
    '',
  ].join('\n');
}

/**
 * Describes the resources that limit a plan, and the gain from each possible addition, such as an instance.
 */
export function describeSaturation({ full, limits, additions }: Saturation): string {
  const limit =
    limits.length === 0 ? 'nothing is full: clients wait for commits and the network' : describeUses(limits);
  return [
    `Full load: ${whole(full.perSecond)} requests a second, p50 ${full.p50Ms.toFixed(1)} ms, p99 ${full.p99Ms.toFixed(1)} ms`,
    `Saturated: ${limit}`,
    '',
    renderTable([
      ['with one addition', 'requests a second', 'gain'],
      ...additions.map(({ what, perSecond, helps }) => [
        `  ${what}`,
        whole(perSecond),
        helps ? percent(perSecond / full.perSecond - 1) : 'none',
      ]),
    ]),
  ].join('\n');
}

/** Describes the simulated result at the rate of `--rate`: throughput, failures and busiest resources. */
export function describeResult({ perSecond, p50Ms, p99Ms, ended, retries, uses }: Result): string {
  const failed = Object.entries(ended).filter(([status, count]) => status !== 'ok' && count > 0);
  const busiest = uses.toSorted((a, b) => b.share - a.share).slice(0, 4);
  return [
    `Succeeded: ${whole(perSecond)} requests a second, p50 ${p50Ms.toFixed(1)} ms, p99 ${p99Ms.toFixed(1)} ms`,
    `Failed: ${failed.map(([status, count]) => `${whole(count)} ${status}`).join(', ') || 'none'}; retries: ${whole(retries)}`,
    `Busiest: ${describeUses(busiest)}`,
    '',
  ].join('\n');
}

function describeUses(uses: readonly Use[]): string {
  return uses.map(({ name, share }) => `${name} ${percent(share)}`).join(', ');
}
