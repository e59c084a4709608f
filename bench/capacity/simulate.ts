import { POSTGRES_BATCHES_IN_FLIGHT } from '../../src/store/open-engine.ts';
import { createRandom } from '../../test/support/data/seeded-random.ts';
import { percentile } from '../load/percentile.ts';
import { type Seen, startClients } from './clients.ts';
import { Clock } from './clock.ts';
import { Database } from './database.ts';
import { Instance } from './instance.ts';
import { type Costs, MICROSECOND, MILLISECOND, type Plan, type Request } from './model.ts';
import { type Busy, Machine, Thread } from './resources.ts';

/** Seconds of CPU time per step of unrelated processes. */
const OTHER_STEP = MILLISECOND;

/** Kinds of resources that can limit the throughput. */
type ResourceKind = 'cores' | 'instance' | 'database' | 'disk' | 'pool' | 'batches';

interface Resource {
  readonly kind: ResourceKind;
  /** Name for the report, such as `main thread of instance 0`. */
  readonly name: string;
  readonly busy: Busy;
}

const resource = (kind: ResourceKind, name: string, busy: Busy): Resource => ({ kind, name, busy });

export interface Use extends Omit<Resource, 'busy'> {
  /** Busy share of the resource after the warm-up, 0 to 1. */
  readonly share: number;
}

export interface Result {
  /** Successful requests per second. */
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly meanMs: number;
  readonly ended: Seen['ended'];
  readonly retries: number;
  readonly uses: readonly Use[];
}

/** Simulates a plan. Equal plans and costs give equal results. */
export function simulate(plan: Plan, costs: Costs): Result {
  const clock = new Clock();
  const random = createRandom(plan.seed);
  const newMachine = (): Machine => new Machine(clock, plan.cores);
  const one = newMachine();
  const place = (): Machine => (plan.layout === 'shared' ? one : newMachine());
  const embedded = plan.engine === 'sqlite';
  const networkMs = plan.layout === 'shared' ? 0 : plan.networkMs;

  const instanceMachines = Array.from({ length: plan.instances }, place);
  const nodeMachines = embedded ? instanceMachines.slice(0, 1) : Array.from({ length: plan.nodes }, place);
  const database = new Database(clock, nodeMachines, costs, {
    networkMs: embedded ? 0 : networkMs,
    timeoutMs: plan.limits.databaseAcquireTimeout,
    failoverSeconds: plan.failoverSeconds,
  });
  const start = (machine: Machine): Instance =>
    new Instance(clock, database, {
      ...{ machine, costs, limits: plan.limits, pooled: !embedded },
      batchesInFlight: embedded ? 1 : POSTGRES_BATCHES_IN_FLIGHT,
    });
  const instances = instanceMachines.map(start);
  const generators = instanceMachines.map((machine) => new Thread(clock, machine, 0));

  /**
   * Balances the load: sends a request to the instance of its connection, or to the next instance that is up.
   */
  function send(lane: number, request: Request): void {
    for (let step = 0; step < instances.length; step += 1) {
      const index = (lane + step) % instances.length;
      const instance = instances[index];
      if (instance?.up !== true) continue;
      sendTo(instance, index, request);
      return;
    }
    clock.after(plan.limits.databaseAcquireTimeout * MILLISECOND, () => request.settle('lost', 0));
  }

  function sendTo(instance: Instance, index: number, request: Request): void {
    if (plan.layout === 'shared') {
      generators[index]?.execute(
        () => costs.generatorUs * MICROSECOND,
        () => instance.receive(request),
      );
    } else if (networkMs === 0) instance.receive(request);
    else {
      const { settle } = request;
      const late: Request['settle'] = (...end) => clock.after(networkMs * MILLISECOND, () => settle(...end));
      instance.receive({ ...request, settle: late });
    }
  }

  if (plan.otherCores > 0) {
    const runOther = (): void => {
      one.run(
        () => OTHER_STEP,
        () => undefined,
      );
      clock.after(OTHER_STEP / plan.otherCores, runOther);
    };
    runOther();
  }

  for (const { what, index, at, seconds } of plan.faults) {
    clock.after(at, () => {
      if (what === 'node') return database.fail(index, seconds);
      instances[index]?.end();
      clock.after(seconds, () => {
        instances[index] = start(instanceMachines[index] ?? one);
      });
    });
  }

  function resources(): readonly Resource[] {
    const ofMachines = plan.layout === 'shared' ? [resource('cores', 'cores', one.busy)] : [];
    const ofInstances = instances.flatMap(({ thread, batches, pool }, n) => [
      resource('instance', `main thread of instance ${n}`, thread.busy),
      resource('batches', `batches of instance ${n}`, batches.busy),
      ...(embedded ? [] : [resource('pool', `connections of instance ${n}`, pool.busy)]),
    ]);
    const ofNodes = database.nodes.flatMap(({ machine, log }, n) => [
      ...(plan.layout === 'shared' ? [] : [resource('database', `cores of node ${n}`, machine.busy)]),
      resource('disk', `disk of node ${n}`, log.busy),
    ]);
    return [...ofMachines, ...ofInstances, ...ofNodes];
  }

  const seen = startClients(clock, plan, random, send);
  clock.runUntil(plan.warmUp);
  const before = new Map(resources().map(({ busy }) => [busy, busy.read()]));
  clock.runUntil(plan.warmUp + plan.seconds);

  const seconds = seen.seconds.toSorted((a, b) => a - b);
  const sum = seconds.reduce((total, one) => total + one, 0);
  return {
    perSecond: seen.ended.ok / plan.seconds,
    p50Ms: percentile(seconds, 0.5) / MILLISECOND,
    p99Ms: percentile(seconds, 0.99) / MILLISECOND,
    meanMs: seconds.length === 0 ? 0 : sum / seconds.length / MILLISECOND,
    ended: seen.ended,
    retries: seen.retries,
    uses: resources().map(({ kind, name, busy }) => ({
      kind,
      name,
      share: (busy.read() - (before.get(busy) ?? 0)) / busy.units / plan.seconds,
    })),
  };
}
