import type { Load } from './fleet.ts';
import { type Costs, defaultLimits, type EngineName, type Kind, measuredOwners, type Plan } from './model.ts';
import { simulate } from './simulate.ts';

/** A measured load: its kind of request, its instances and connections, and its results. */
export interface Sample {
  readonly kind: Kind;
  readonly instances: number;
  readonly connections: number;
  readonly load: Load;
}

export interface Calibration {
  readonly engine: EngineName;
  readonly cores: number;
  readonly syncMs: number;
  /** Loads on one instance, for each kind of request and several numbers of connections. */
  readonly alone: readonly Sample[];
  /** A load whose requests are all rejected. */
  readonly rejected: Load;
  /** Full loads on one and on several instances, for each kind of request, in several rounds. */
  readonly full: readonly Sample[];
}

const STEPS = 10;
const MAX_FACTOR = 4;
const kinds = ['create', 'list'] as const;

/** Finds the costs with which the simulation reproduces the measured throughput. */
export function calibrate(calibration: Calibration): Costs {
  let costs = measuredCosts(calibration);
  for (const kind of kinds) {
    const ofKind = calibration.full.filter((sample) => sample.kind === kind);
    const [one = [], many = []] = [1, 2].map((count) =>
      ofKind.filter(({ instances }) => Math.min(instances, 2) === count),
    );
    // Adjusts the costs to the measured throughput, since CPU times leave out waits for the scheduler and the
    // hypervisor.
    if (one.length > 0) costs = fit(one, calibration, (factor) => slower(costs, kind, factor));
    if (many.length > 0) costs = fit(many, calibration, (factor) => crowded(costs, kind, factor));
  }
  return costs;
}

/**
 * Finds the factor, up to MAX_FACTOR, with which the simulation predicts the mean throughput of the samples.
 * Returns the costs for this factor.
 */
function fit(
  samples: readonly Sample[],
  calibration: Calibration,
  costsFor: (factor: number) => Costs,
): Costs {
  let [low, high] = [0, MAX_FACTOR];
  for (let step = 0; step < STEPS; step += 1) {
    const middle = (low + high) / 2;
    const costs = costsFor(middle);
    const tooFast = sum(samples, (one) => Math.log(predict(one, costs, calibration) / one.load.perSecond));
    if (tooFast > 0) low = middle;
    else high = middle;
  }
  return costsFor((low + high) / 2);
}

function slower({ service, database, ...others }: Costs, kind: Kind, factor: number): Costs {
  const [create, list] = kind === 'create' ? [factor, 1] : [1, factor];
  const times = <T extends Costs['database']>(costs: T): T => ({
    ...costs,
    createUs: costs.createUs * create,
    batchUs: costs.batchUs * create,
    listUs: costs.listUs * list,
  });
  return { ...others, service: times(service), database: times(database) };
}

function crowded(costs: Costs, kind: Kind, factor: number): Costs {
  return { ...costs, crowding: { ...costs.crowding, [kind]: factor } };
}

/** Returns the costs from the measured CPU times, which leave out waits for a core. */
function measuredCosts({ engine, alone, rejected, syncMs }: Calibration): Costs {
  const creates = alone.filter(({ kind }) => kind === 'create').map(({ load }) => load);
  const lists = alone.filter(({ kind }) => kind === 'list').map(({ load }) => load);
  const main = fitLine(creates, ({ cpu }) => cpu.main);
  // On SQLite the writer thread does the database work. The thread's CPU time is in `background`.
  const database = fitLine(creates, ({ cpu }) => (engine === 'sqlite' ? cpu.background : cpu.database));
  const all = [...creates, ...lists];
  return {
    service: {
      createUs: main.each,
      batchUs: main.batch,
      listUs: perRequest(lists, ({ cpu }) => cpu.main),
      rejectUs: perRequest([rejected], ({ cpu }) => cpu.main),
      background:
        engine === 'sqlite' ? 0 : sum(all, ({ cpu }) => cpu.background) / sum(all, ({ cpu }) => cpu.main),
    },
    database: {
      createUs: database.each,
      batchUs: database.batch,
      listUs: engine === 'sqlite' ? 0 : perRequest(lists, ({ cpu }) => cpu.database),
    },
    syncMs,
    generatorUs: perRequest(all, ({ cpu }) => cpu.generators),
    crowding: { create: 0, list: 0 },
  };
}

/**
 * Simulates the conditions of a sample on one machine, including the CPU use of other processes. Returns the
 * predicted requests per second.
 */
export function predict(
  { kind, instances, connections, load }: Sample,
  costs: Costs,
  { engine, cores }: Pick<Calibration, 'engine' | 'cores'>,
): number {
  const creates = kind === 'create' ? 1 : 0;
  const conditions = { engine, cores, otherCores: otherCoresOf(load), instances, creates };
  return simulate({ ...onOneMachine, ...conditions, load: { connections } }, costs).perSecond;
}

/** Returns the mean number of cores that other processes and other virtual machines used during a load. */
export function otherCoresOf({ cpu, answers, perSecond }: Load): number {
  return ((cpu.others + cpu.stolen) * perSecond) / answers;
}

const onOneMachine: Omit<Plan, 'engine' | 'cores' | 'otherCores' | 'instances' | 'load' | 'creates'> = {
  ...{ nodes: 1, ...measuredOwners, layout: 'shared', networkMs: 0, limits: defaultLimits },
  ...{ retries: 0, failoverSeconds: 0, faults: [], seconds: 0.5, warmUp: 0.2, seed: 1 },
};

/** Fits by least squares, in microseconds: CPU time per request = `each` + `batch` × batches per request. */
function fitLine(loads: readonly Load[], seconds: (load: Load) => number): { each: number; batch: number } {
  const points = loads.map((load) => ({
    x: load.batches / load.answers,
    y: (seconds(load) / load.answers) * 1e6,
  }));
  const meanX = sum(points, ({ x }) => x) / points.length;
  const meanY = sum(points, ({ y }) => y) / points.length;
  const spread = sum(points, ({ x }) => (x - meanX) ** 2);
  const slope = spread === 0 ? 0 : sum(points, ({ x, y }) => (x - meanX) * (y - meanY)) / spread;
  const batch = Math.min(Math.max(0, slope), meanX === 0 ? 0 : meanY / meanX);
  // Rounding can make the difference slightly negative.
  return { each: Math.max(0, meanY - batch * meanX), batch };
}

function perRequest(loads: readonly Load[], seconds: (load: Load) => number): number {
  return (sum(loads, seconds) / sum(loads, ({ answers }) => answers)) * 1e6;
}

function sum<T>(items: readonly T[], of: (item: T) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}
