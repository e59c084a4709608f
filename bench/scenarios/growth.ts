import { appendFile, mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { mintSecret, newToken, scopes } from '../../src/token.ts';
import type { PostgresServer } from '../../test/support/servers/postgres-server.ts';
import { cpuSeconds } from '../../test/support/servers/process-tree.ts';
import { type Comparison, compare } from '../compare.ts';
import type { Contender } from '../contenders/contender.ts';
import { openFiller, ownerName, plantsOf, type StoreFiller } from '../contenders/fill-store.ts';
import { httpContender } from '../contenders/http-contender.ts';
import { DELETES_A_SECOND, startPlantStore } from '../contenders/plant-store.ts';
import type { RunningSubject } from '../contenders/subject.ts';
import { cpuOf, cpuRatio } from '../report/cpu-per-request.ts';
import { figuresOf } from '../report/figures.ts';
import { decimals, mebibytes, show, type Table, whole } from '../report/table.ts';
import {
  createAtRandom,
  createBehindAll,
  deleteAtRandom,
  listOfTwenty,
  lookUpOfToken,
  type Workload,
} from '../workload.ts';
import { startCheckedPostgres } from './postgres.ts';
import { type Bench, type Growth, type Part, type Report, reportOf } from './scenario.ts';

interface Size {
  readonly plants: number;
  readonly owners: number;
}

const smallest: Size = { plants: 1_000, owners: 1 };

/**
 * Max number of owners that send requests, with their tokens in rotation. They are more than the token cache of
 * the service holds, so that each request looks up its token in the store.
 */
const CALLERS = 20_000;
const fewOwners: Size = { plants: CALLERS, owners: CALLERS };

/** Store sizes to measure in addition to `smallest`. */
const largerSizes = {
  short: [{ plants: 1_000_000, owners: 1 }],
  full: [
    { plants: 1_000_000, owners: 1 },
    { plants: 10_000_000, owners: 1 },
    { plants: 50_000_000, owners: 1 },
  ],
} as const satisfies Record<Growth, readonly Size[]>;

/** Sizes of the store with many owners. Its results are compared with those of `fewOwners`. */
const manyOwners = {
  short: { plants: 100_000, owners: 100_000 },
  full: { plants: 1_000_000, owners: 1_000_000 },
} as const satisfies Record<Growth, Size>;

const SECONDS = 1;
const WARM_UP_ANSWERS = 20_000;
const TOKENS_AT_ONCE = 50_000;
/** Max number of requests that a load generator sends without counting their responses. */
const UNCOUNTED = 200;

const workloads = [lookUpOfToken, listOfTwenty, createBehindAll, createAtRandom, deleteAtRandom];

export const growthPart: Part = {
  name: 'growth',
  about: 'CPU time, rate and memory with growing numbers of plants and owners, on both engines',
  run: runGrowth,
};

interface FilledStore {
  readonly size: Size;
  readonly running: RunningSubject;
  readonly filler: StoreFiller;
  /** The PostgreSQL server of the store; undefined on SQLite. */
  readonly server: PostgresServer | undefined;
}

async function runGrowth(bench: Bench): Promise<Report> {
  const all = [smallest, ...largerSizes[bench.growth], fewOwners, manyOwners[bench.growth]];
  const comparisons = [
    ...(await compareSizes(bench, 'SQLite', all)),
    ...(await compareSizes(bench, 'PostgreSQL', all)),
  ];
  const owned = (one: Workload): (number | undefined)[] =>
    comparisons
      .filter(({ work }) => work.startsWith(one.name))
      .flatMap(({ contenders: [first, ...others] }) =>
        others.slice(0, -2).map((other) => cpuRatio(other, first)),
      );
  const ofManyOwners = comparisons.map(({ contenders }) => cpuRatio(contenders.at(-1), contenders.at(-2)));
  const report = reportOf(comparisons, {
    createGrowth: worstOf([...owned(createBehindAll), ...owned(createAtRandom)]),
    listGrowth: worstOf(owned(listOfTwenty)),
    deleteGrowth: worstOf(owned(deleteAtRandom)),
    ownersGrowth: worstOf(ofManyOwners),
  });
  return { ...report, tables: comparisons.map(tableOf) };
}

/** Returns the highest ratio; undefined if any ratio was not measured. */
function worstOf(ratios: readonly (number | undefined)[]): number | undefined {
  const known = ratios.filter((one) => one !== undefined);
  return known.length < ratios.length ? undefined : Math.max(...known);
}

async function compareSizes(
  bench: Bench,
  engine: 'SQLite' | 'PostgreSQL',
  all: readonly Size[],
): Promise<readonly Comparison[]> {
  await using resources = new AsyncDisposableStack();
  const folder = await mkdtemp(join(bench.folder, 'growth-'));
  const server = engine === 'PostgreSQL' ? await startCheckedPostgres(resources) : undefined;
  const stores: FilledStore[] = [];
  for (const size of all) {
    bench.signal.throwIfAborted();
    process.stderr.write(`filling ${engine} with ${describe(size)} …\n`);
    stores.push(await startFilled(size, await mkdtemp(join(folder, 'store-')), server, resources));
  }
  const warmUp = Math.min(bench.plan.warmUp, SECONDS);
  const plan = { ...bench.plan, warmUp, seconds: SECONDS, warmUpAnswers: WARM_UP_ANSWERS };
  const comparisons: Comparison[] = [];
  for (const workload of workloads) {
    // With one owner, the token cache has its token.
    const measured = workload === lookUpOfToken ? stores.filter(({ size }) => size.owners > 1) : stores;
    const contenders = measured.map((store) => keepingSize(store, workload, bench));
    comparisons.push(await compare(`${workload.name}, ${engine}`, contenders, plan));
  }
  return comparisons;
}

async function startFilled(
  size: Size,
  folder: string,
  server: PostgresServer | undefined,
  resources: AsyncDisposableStack,
): Promise<FilledStore> {
  const database = `plants_${size.plants}_of_${size.owners}`;
  await server?.sql(`CREATE DATABASE ${database}`);
  const databaseUrl = server?.url(database) ?? `sqlite:${join(folder, 'plants.db')}`;
  const { plants, owners } = size;
  const callers = callersOf(size);
  const fill = async (): Promise<string | undefined> => {
    await using filler = await openFiller(databaseUrl);
    await filler.fill(plants, owners);
    const secrets = owners === 1 ? undefined : await createTokens(filler, size, join(folder, 'tokens'));
    await filler.settle();
    return secrets;
  };
  const running = await startPlantStore({ folder, databaseUrl, callers, fill });
  resources.defer(() => running.close());
  const filler = resources.use(await openFiller(databaseUrl));
  return { size, running, filler, server };
}

/** Returns the owners that send requests, spread over all owners. */
function callersOf({ owners }: Size): readonly string[] {
  const length = Math.min(owners, CALLERS);
  return Array.from({ length }, (_, caller) => ownerName((caller * owners) / length));
}

/**
 * Creates a token for each owner. Returns the file with the tokens of the owners that send requests, in the
 * order of `callersOf`.
 */
async function createTokens(filler: StoreFiller, size: Size, file: string): Promise<string> {
  const callers = new Set(callersOf(size));
  const now = Date.now();
  const fields = { scopes, expiresAt: null, name: 'bench' };
  for (let first = 0; first < size.owners; first += TOKENS_AT_ONCE) {
    const length = Math.min(TOKENS_AT_ONCE, size.owners - first);
    const tokens = Array.from({ length }, (_, index) => ({
      secret: mintSecret(),
      owner: ownerName(first + index),
    }));
    await filler.addTokens(tokens.map(({ secret, owner }) => newToken(secret, owner, fields, now)));
    const ofCallers = tokens.filter(({ owner }) => callers.has(owner));
    await appendFile(file, ofCallers.map(({ secret }) => `${secret}\n`).join(''));
  }
  return file;
}

/** Measures a store that has the same size before each run: after a run, removes its plants. */
function keepingSize(
  { size, running, filler, server }: FilledStore,
  workload: Workload,
  bench: Bench,
): Contender {
  const prepared = { ...running, prepare: async () => {} };
  const { name, measure } = httpContender({ name: describe(size), running: prepared }, workload, bench);
  const [method] = workload.requests.map((request) => request.method);
  return {
    name,
    measure: async (run, seconds) => {
      const ids = workload.ids(run);
      await running.prepare(workload, ids, seconds);
      const before = server && (await cpuSeconds(server.pid));
      const measurement = await measure(run, seconds);
      const after = server && (await cpuSeconds(server.pid));
      const { answers } = measurement;
      const count = method === 'DELETE' ? DELETES_A_SECOND * seconds : answers + UNCOUNTED;
      if (method !== 'GET') await filler.removePlants(plantsOf(ids, count, callersOf(size)));
      return { ...measurement, databaseSeconds: before && after && after - before };
    },
  };
}

function describe({ plants, owners }: Size): string {
  return `${whole(plants)} plants, ${whole(owners)} owner${owners === 1 ? '' : 's'}`;
}

/**
 * Compares the stores of one owner with the smallest store, and the store of many owners with that of fewer.
 */
function tableOf({ work, contenders }: Comparison): Table {
  const rows = contenders.map((one, index) => {
    const base = contenders[index < contenders.length - 2 ? 0 : contenders.length - 2];
    const figures = figuresOf(one.runs);
    const microseconds = figures?.databaseSecondsPerRequest;
    return [
      `  ${one.name}`,
      show(cpuOf(one), decimals(1)),
      show(cpuRatio(one, base), decimals(2)),
      show(cpuOf(one, 0.5), decimals(1)),
      show(microseconds === undefined ? undefined : microseconds * 1e6, decimals(1)),
      show(figures?.perSecond, whole),
      show(figures?.peakBytes, mebibytes),
      show(figures?.failures, String),
    ];
  });
  return [[work, 'CPU µs', '÷ base', 'disturbed', 'database', 'a second', 'peak MiB', 'failures'], ...rows];
}
