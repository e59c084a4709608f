import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '../../src/thrown-errors.ts';
import { isInstalled } from '../../test/support/needs.ts';
import { readFlags, seedFlag } from '../../test/support/script-flags.ts';
import { wrk } from '../load/wrk.ts';
import { calibrate, predict } from './calibrate.ts';
import { readCosts, writeCosts } from './costs-file.ts';
import { measure } from './measure.ts';
import { defaultLimits, type Fault, type Plan } from './model.ts';
import {
  describeCheck,
  describePlan,
  describeResult,
  describeSaturation,
  describeUsage,
  errorOf,
} from './report.ts';
import { saturate } from './saturation.ts';
import { simulate } from './simulate.ts';

/** Max median of the relative errors of the predicted throughput. */
const TOLERANCE = 0.2;
const CHECKED = [1, 2, 4].map((instances) => ({ instances, connections: 64 }));

const values = readFlags('Simulates instances and database nodes, and prints where they saturate.', {
  measure: { type: 'boolean', about: 'measure the costs of this machine, and write them to --costs' },
  check: { type: 'boolean', about: 'measure 1, 2 and 4 instances too, and compare them with the simulation' },
  seconds: { type: 'string', default: '3', about: 'duration of each measurement' },
  'warm-up': {
    type: 'string',
    default: '6',
    about: 'seconds of each kind of load before, for each instance',
  },
  rounds: { type: 'string', default: '3', about: 'measurements of each kind' },
  costs: { type: 'string', takes: 'FILE', default: 'capacity.json', about: 'costs of a machine' },
  engine: { type: 'string', takes: 'postgres|sqlite', default: 'postgres', about: 'engine' },
  instances: { type: 'string', default: '2', about: 'instances of the service' },
  nodes: { type: 'string', default: '1', about: 'database nodes, which share the owners' },
  owners: { type: 'string', default: '1000', about: 'owners' },
  skew: {
    type: 'string',
    default: '1',
    about: 'exponent of the Zipf distribution over owners; 0 for equal shares',
  },
  creates: { type: 'string', default: '0.1', about: 'share of creates; the other requests are lists of 20' },
  rate: { type: 'string', default: '0', about: 'requests a second to simulate too; 0 for full load only' },
  cores: { type: 'string', default: '2', about: 'cores of each machine' },
  layout: {
    ...{ type: 'string', takes: 'separate|shared', default: 'separate' },
    about: 'a machine for each instance and node, or one for all and the load generators',
  },
  'network-ms': { type: 'string', default: '0.2', about: 'round trip between machines' },
  'max-in-flight': { type: 'string', default: String(defaultLimits.maxInFlight), about: 'as of serve' },
  'database-pool-size': {
    type: 'string',
    default: String(defaultLimits.databasePoolSize),
    about: 'as of serve',
  },
  'token-rate-limit': { type: 'string', default: String(defaultLimits.tokenRateLimit), about: 'as of serve' },
  retries: { type: 'string', default: '2', about: 'retries of a client' },
  faults: {
    type: 'string',
    takes: 'LIST',
    default: '',
    about: 'such as instance:0@5+10,node:1@8+5 (at second, for seconds)',
  },
  failover: {
    type: 'string',
    default: '10',
    about: 'seconds until another node serves the owners of a lost one',
  },
  simulated: { type: 'string', default: '10', about: 'simulated seconds that count, after 1 that does not' },
  seed: { ...seedFlag, default: '1', about: 'seed of the simulation' },
});

try {
  process.exitCode = values.measure || values.check ? await runMeasurement() : await runSimulation();
} catch (error: unknown) {
  process.stderr.write(`capacity: ${messageOf(error)}\n`);
  process.exitCode = 1;
}

/** Measures the costs of this machine. Resolves to the exit code. */
async function runMeasurement(): Promise<number> {
  if (!isInstalled('wrk')) throw new Error('install wrk, which takes less CPU time than other generators');
  await using resources = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-capacity-'));
  resources.defer(() => rm(folder, { recursive: true, force: true }));
  const stop = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => stop.abort());
  const options = {
    ...{ folder, generator: wrk, signal: stop.signal },
    ...{ seconds: Number(values.seconds), rounds: Number(values.rounds), warmUp: Number(values['warm-up']) },
  };
  const postgres = await measure('postgres', values.check ? CHECKED : [], options);
  const sqlite = await measure('sqlite', [], options);
  const costs = calibrate(postgres.calibration);
  await writeCosts(values.costs, { postgres: costs, sqlite: calibrate(sqlite.calibration) });
  process.stdout.write(`${describeUsage([postgres, sqlite])}\nThe costs are in ${values.costs}.\n`);
  if (!values.check) return 0;
  const compared = postgres.samples.map((sample) => ({
    sample,
    predicted: predict(sample, costs, postgres.calibration),
  }));
  const loads = [...Map.groupBy(compared, ({ sample }) => `${sample.kind} ${sample.instances}`).values()];
  process.stdout.write(`\n${describeCheck(loads)}`);
  return loads.every((rounds) => Math.abs(errorOf(rounds)) <= TOLERANCE) ? 0 : 1;
}

/** Simulates the plan that the flags describe. Resolves to the exit code. */
async function runSimulation(): Promise<number> {
  const { [values.engine === 'sqlite' ? 'sqlite' : 'postgres']: costs } = await readCosts(values.costs);
  const plan = planOfFlags();
  process.stdout.write(`${describePlan(plan)}\n${describeSaturation(saturate(plan, costs))}`);
  const rate = Number(values.rate);
  if (rate === 0) return 0;
  const result = simulate({ ...plan, load: { perSecond: rate } }, costs);
  process.stdout.write(`\nAt ${rate} requests a second:\n${describeResult(result)}`);
  return 0;
}

function planOfFlags(): Plan {
  const embedded = values.engine === 'sqlite';
  return {
    engine: embedded ? 'sqlite' : 'postgres',
    instances: embedded ? 1 : Number(values.instances),
    nodes: embedded ? 1 : Number(values.nodes),
    owners: Number(values.owners),
    skew: Number(values.skew),
    creates: Number(values.creates),
    load: { perSecond: Number(values.rate) },
    layout: values.layout === 'shared' ? 'shared' : 'separate',
    cores: Number(values.cores),
    otherCores: 0,
    networkMs: Number(values['network-ms']),
    limits: {
      ...defaultLimits,
      maxInFlight: Number(values['max-in-flight']),
      databasePoolSize: Number(values['database-pool-size']),
      tokenRateLimit: Number(values['token-rate-limit']),
    },
    retries: Number(values.retries),
    failoverSeconds: Number(values.failover),
    faults: values.faults === '' ? [] : values.faults.split(',').map(toFault),
    seconds: Number(values.simulated),
    warmUp: 1,
    seed: Number(values.seed),
  };
}

function toFault(text: string): Fault {
  const [, what, index, at, seconds] = /^(instance|node):(\d+)@([\d.]+)\+([\d.]+)$/.exec(text) ?? [];
  if (what === undefined) throw new Error(`a fault is such as instance:0@5+10, not ${text}`);
  return {
    what: what === 'node' ? 'node' : 'instance',
    index: Number(index),
    at: Number(at),
    seconds: Number(seconds),
  };
}
