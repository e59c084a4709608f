import { mkdtemp } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { Generator } from '../load/generator.ts';
import { medianFsyncMs } from '../report/fsync-latency.ts';
import { startCheckedPostgres } from '../scenarios/postgres.ts';
import { createInOrder, listOfTwenty, type RequestTemplate } from '../workload.ts';
import type { Calibration, Sample } from './calibrate.ts';
import { Fleet, type Load } from './fleet.ts';
import type { EngineName, Kind } from './model.ts';

/** Numbers of instances and connections of a load. */
export type Shape = Pick<Sample, 'instances' | 'connections'>;

/**
 * Numbers of connections for the loads on one instance. These loads give the costs per request and per batch.
 */
const ALONE = [1, 4, 16, 32];
/** Instances and connections of the full loads. These loads show how instances compete for the cores. */
const FULL: readonly Shape[] = [
  { instances: 1, connections: 32 },
  { instances: 3, connections: 48 },
];

/** Max measurements of one load. Requests can fail while another program stalls this machine for seconds. */
const MAX_TRIES = 5;

/**
 * Requests that get a 404, about as early as an overloaded service rejects requests. They measure the cost of
 * a rejection.
 */
const UNKNOWN_PATH: readonly RequestTemplate[] = [{ method: 'GET', target: '/nowhere', body: '', times: 1 }];

const requestsOf: Record<Kind, readonly RequestTemplate[]> = {
  create: createInOrder.requests,
  list: listOfTwenty.requests,
};
const kinds = ['create', 'list'] as const;

/** Resources that a thousand requests of one kind use. */
interface Usage {
  readonly kind: Kind;
  readonly serviceCpuMs: number;
  readonly databaseCpuMs: number;
  readonly logBytes: number;
  readonly storeBytes: number;
  readonly writtenBytes: number;
}

export interface Measured {
  readonly calibration: Calibration;
  /** Measured loads to compare with the predictions. The costs do not depend on them. */
  readonly samples: readonly Sample[];
  readonly usage: readonly Usage[];
  readonly residentBytes: { readonly atRest: number; readonly loaded: number };
  readonly databaseConnections: number;
}

interface MeasureOptions {
  readonly folder: string;
  readonly generator: Generator;
  readonly signal: AbortSignal;
  readonly seconds: number;
  readonly rounds: number;
  /** Seconds of warm-up for each kind of request and each instance. */
  readonly warmUp: number;
}

/**
 * Measures an engine on this machine. Also measures the loads in `checked`, only to check the predictions:
 * they do not affect the costs.
 */
export async function measure(
  engine: EngineName,
  checked: readonly Shape[],
  options: MeasureOptions,
): Promise<Measured> {
  await using resources = new AsyncDisposableStack();
  const server = engine === 'postgres' ? await startCheckedPostgres(resources) : undefined;
  const folder = await mkdtemp(join(options.folder, `${engine}-`));
  const syncMs = medianFsyncMs(join(folder, 'sync'));
  const fleet = new Fleet({ ...options, folder, server });
  const { seconds } = options;

  const shapes = [...(server === undefined ? FULL.slice(0, 1) : FULL), ...checked];
  await fleet.grow(1, resources);
  const atRest = (await fleet.size()).residentBytes;
  await fleet.grow(Math.max(...shapes.map(({ instances }) => instances)), resources);
  await fleet.warmUp(
    kinds.map((kind) => requestsOf[kind]),
    options.warmUp,
  );

  const rounds: Sample[] = [];
  const alone: Sample[] = [];
  const take = async (into: Sample[], kind: Kind, shape: Shape): Promise<void> => {
    // Reopens database connections that the service closed as idle.
    if (server !== undefined) await fleet.load(requestsOf[kind], { ...shape, seconds: 1 });
    for (let tries = 1; ; tries += 1) {
      const load = await fleet.load(requestsOf[kind], { ...shape, seconds });
      if (load.failures === 0) {
        into.push({ kind, ...shape, load });
        return;
      }
      if (tries === MAX_TRIES) throw new Error(`${load.failures} requests failed, in ${tries} tries`);
    }
  };
  for (const connections of ALONE)
    for (const kind of kinds) await take(alone, kind, { instances: 1, connections });
  const rejected = await fleet.load(UNKNOWN_PATH, { instances: 1, connections: 32, seconds });
  for (let round = 0; round < options.rounds; round += 1)
    for (const shape of shapes) for (const kind of kinds) await take(rounds, kind, shape);

  const isChecked = (sample: Sample): boolean => checked.some((shape) => isOf(sample, shape));
  const full = rounds.filter((sample) => !isChecked(sample));
  const { residentBytes, databaseConnections } = await fleet.size();
  return {
    calibration: { engine, cores: availableParallelism(), syncMs, alone, rejected, full },
    samples: rounds.filter(isChecked),
    usage: kinds.map((kind) => usageOf(kind, full.find((one) => one.kind === kind)?.load)),
    residentBytes: { atRest, loaded: residentBytes },
    databaseConnections,
  };
}

function isOf(sample: Sample, { instances, connections }: Shape): boolean {
  return sample.instances === instances && sample.connections === connections;
}

function usageOf(kind: Kind, load: Load | undefined): Usage {
  if (load === undefined) throw new Error(`no load of ${kind} was measured`);
  const { cpu, bytes, answers } = load;
  const perThousand = (total: number): number => (total / answers) * 1_000;
  return {
    kind,
    serviceCpuMs: perThousand(cpu.main + cpu.background) * 1_000,
    databaseCpuMs: perThousand(cpu.database) * 1_000,
    logBytes: perThousand(bytes.log),
    storeBytes: perThousand(bytes.store),
    writtenBytes: perThousand(bytes.written),
  };
}
