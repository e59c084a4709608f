import { mkdtemp, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { toPlantRow } from '../../src/plant.ts';
import type { Store } from '../../src/store/store.ts';
import { createRandom } from '../../test/support/data/seeded-random.ts';
import { residentMemory } from '../../test/support/process-resources.ts';
import type { PostgresServer } from '../../test/support/servers/postgres-server.ts';
import { cpuSeconds } from '../../test/support/servers/process-tree.ts';
import { createTokenIn } from '../../test/support/tokens.ts';
import { manyAtOnce, startPlantStore } from '../contenders/plant-store.ts';
import { type CpuSeconds, readCpuSeconds } from '../contenders/process-stats.ts';
import type { RunningSubject } from '../contenders/subject.ts';
import { type Generator, type LoadResult, runLoad } from '../load/generator.ts';
import { type Ids, LISTED, NEW_PLANT, type RequestTemplate } from '../workload.ts';
import { zipf } from './clients.ts';
import { measuredOwners } from './model.ts';

/** Number of lines in the token file. The load generators use the tokens in rotation. */
const TOKENS = 2_000;

/** Number of ids reserved for each load generator. No generator uses more during its load. */
const IDS = 10_000_000;

/** The results of a load on several instances, and the resources that the load used. */
export interface Load {
  readonly answers: number;
  readonly failures: number;
  readonly perSecond: number;
  readonly batches: number;
  /**
   * CPU seconds by user. `main` and `background` are the service's main threads and its other threads.
   * `others` are all other processes, `stolen` is the time of other virtual machines.
   */
  readonly cpu: Readonly<
    Record<'main' | 'background' | 'database' | 'generators' | 'others' | 'stolen', number>
  >;
  /**
   * Bytes: growth of the log files and of the store, and writes to the disk. On PostgreSQL, `written` counts
   * only the write-ahead log.
   */
  readonly bytes: Readonly<Record<'log' | 'store' | 'written', number>>;
}

interface FleetOptions {
  readonly folder: string;
  readonly generator: Generator;
  readonly signal: AbortSignal;
  /** The PostgreSQL server; undefined for SQLite. */
  readonly server: PostgresServer | undefined;
}

interface StartedInstance extends RunningSubject {
  readonly folder: string;
  readonly adminUrl: string;
}

/** Instances of the service with the same owners, on one store. */
export class Fleet {
  readonly #options: FleetOptions;
  readonly #instances: StartedInstance[] = [];
  #secrets: Promise<string> | undefined;
  #generators = 0;

  constructor(options: FleetOptions) {
    this.#options = options;
  }

  /** Starts instances until `count` are running. They stop when `resources` is disposed. */
  async grow(count: number, resources: AsyncDisposableStack): Promise<void> {
    const { server } = this.#options;
    while (this.#instances.length < count) {
      const folder = await mkdtemp(join(this.#options.folder, 'instance-'));
      const running = await startPlantStore({
        folder,
        ...(server !== undefined && { databaseUrl: server.url() }),
        fill: (store) => {
          this.#secrets ??= fillStore(store, join(folder, 'tokens'));
          return this.#secrets;
        },
      });
      resources.defer(() => running.close());
      const log = await readFile(join(folder, 'log'), 'utf8');
      const adminUrl = /"adminUrl":"([^"]+)"/.exec(log)?.[1] ?? '';
      this.#instances.push({ ...running, folder, adminUrl });
    }
  }

  /** Loads the instances one after the other, so that V8 compiles their code. */
  async warmUp(workloads: readonly (readonly RequestTemplate[])[], seconds: number): Promise<void> {
    for (const instance of this.#instances)
      for (const requests of workloads) await this.#send([instance], requests, 32, seconds);
  }

  /**
   * Sends requests to the first `instances` instances, with an equal share of the `connections` for each
   * instance.
   */
  async load(
    requests: readonly RequestTemplate[],
    { instances: count, connections, seconds }: { instances: number; connections: number; seconds: number },
  ): Promise<Load> {
    const instances = this.#instances.slice(0, count);
    const before = await this.#read(instances);
    const results = await this.#send(instances, requests, connections / count, seconds);
    const after = await this.#read(instances);
    const answers = results.reduce((sum, result) => sum + result.answers, 0);
    const by = (name: keyof typeof after): number => after[name] - before[name];
    return {
      answers,
      failures: results.reduce((sum, { failures }) => sum + failures, 0),
      perSecond: results.reduce((sum, result) => sum + result.answers / result.seconds, 0),
      batches: by('batches'),
      cpu: {
        main: by('main'),
        background: by('background'),
        database: by('database'),
        generators: by('generators'),
        stolen: by('stolen'),
        others: Math.max(
          0,
          by('machine') - by('main') - by('background') - by('database') - by('generators'),
        ),
      },
      bytes: { log: by('log'), store: by('store'), written: by('written') },
    };
  }

  /** Returns the resident bytes of the first instance, and the number of its open database connections. */
  async size(): Promise<{ residentBytes: number; databaseConnections: number }> {
    const [instance] = this.#instances;
    if (instance === undefined) throw new Error('no instance was started');
    const metrics = await metricsOf(instance.adminUrl);
    return {
      residentBytes: await residentMemory(instance),
      databaseConnections: sumOf(metrics, 'plant_store_database_connections'),
    };
  }

  /** Starts one load generator per instance. No two generators use the same ids. */
  #send(
    instances: readonly StartedInstance[],
    requests: readonly RequestTemplate[],
    connections: number,
    seconds: number,
  ): Promise<readonly LoadResult[]> {
    const { generator, signal } = this.#options;
    return Promise.all(
      instances.map(({ url, secretsFile, headers }) => {
        this.#generators += 1;
        const ids: Ids = { order: 'sequential', first: this.#generators * IDS };
        return runLoad(generator, { url, headers, secretsFile, requests, ids, seconds, connections }, signal);
      }),
    );
  }

  async #read(instances: readonly StartedInstance[]) {
    const { server } = this.#options;
    const each = await Promise.all(
      instances.map(async ({ pid, adminUrl, folder }) => ({
        ...cpuOf(pid),
        pid,
        folder,
        batches: sumOf(await metricsOf(adminUrl), 'plant_store_commit_duration_seconds_count'),
        log: (await stat(join(folder, 'log'))).size,
      })),
    );
    const sum = (name: 'server' | 'serverMainThread' | 'batches' | 'log'): number =>
      each.reduce((total, one) => total + one[name], 0);
    const [first] = each;
    return {
      main: sum('serverMainThread'),
      background: sum('server') - sum('serverMainThread'),
      batches: sum('batches'),
      log: sum('log'),
      generators: first?.generators ?? 0,
      machine: first?.machine ?? 0,
      stolen: first?.stolen ?? 0,
      ...(server === undefined ? await readFiles(first) : await readServer(server)),
    };
  }
}

function cpuOf(pid: number): CpuSeconds {
  const cpu = readCpuSeconds(pid);
  if (cpu === undefined) throw new Error('CPU times need /proc, as on Linux');
  return cpu;
}

/**
 * Returns the figures of SQLite. SQLite runs inside the service, so its CPU time counts there and `database`
 * is 0.
 */
async function readFiles(instance: { pid: number; folder: string; log: number } | undefined) {
  if (instance === undefined) return { database: 0, store: 0, written: 0 };
  const io = await readFile(`/proc/${instance.pid}/io`, 'utf8');
  return {
    database: 0,
    store: (await stat(join(instance.folder, 'plants.db'))).size,
    written: Number(/^write_bytes: (\d+)/m.exec(io)?.[1]) - instance.log,
  };
}

async function readServer(server: PostgresServer) {
  const [row] = await server.sql(
    `SELECT pg_database_size(current_database()) AS store, pg_current_wal_lsn() - '0/0' AS written`,
  );
  return {
    database: (await cpuSeconds(server.pid)) ?? 0,
    store: Number(row?.store),
    written: Number(row?.written),
  };
}

async function metricsOf(adminUrl: string): Promise<string> {
  return (await fetch(`${adminUrl}/metrics`, { headers: { connection: 'close' } })).text();
}

/** Sums the values of a metric over all its labels. */
function sumOf(metrics: string, name: string): number {
  const values = metrics.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'));
  return [...values].reduce((sum, [, value]) => sum + Number(value), 0);
}

/**
 * Creates the plants that list requests return, for each owner. Writes a file of tokens in which popular
 * owners occur more often.
 */
async function fillStore(store: Store, file: string): Promise<string> {
  const owners = Array.from({ length: measuredOwners.owners }, (_, owner) => `owner-${owner}`);
  const tokens = await Promise.all(owners.map((owner) => createTokenIn(store, owner)));
  const plants = owners.flatMap((owner) =>
    Array.from({ length: LISTED }, (_, id) => toPlantRow(owner, { ...NEW_PLANT, id: BigInt(id) })),
  );
  await manyAtOnce(plants, (plant) => store.write({ kind: 'createPlant', ...plant, idempotencyKey: null }));
  const pick = zipf(measuredOwners.owners, measuredOwners.skew, createRandom(1));
  await writeFile(file, Array.from({ length: TOKENS }, () => `${tokens[pick()]?.secret}\n`).join(''));
  return file;
}
