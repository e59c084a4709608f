import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { TestContext } from 'node:test';
import { migrateStore } from '../../../src/store/open-engine.ts';
import { execute, rowsOf } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';

const DISTRIBUTE = readFileSync(new URL('../../../deploy/citus.sql', import.meta.url), 'utf8');

/** A cluster of Citus by the URLs of its servers, each with a database to connect to. */
export interface CitusNodes {
  readonly coordinator: string;
  readonly workers: readonly string[];
}

/** Reads the workers of a cluster from its coordinator. They must accept the login of the coordinator's URL. */
export async function readNodes(coordinator: string): Promise<CitusNodes> {
  const nodes = await rowsOf(
    coordinator,
    "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid <> 0 AND isactive AND noderole = 'primary' ORDER BY nodeid",
  );
  const workers = nodes.map(({ nodename, nodeport }) => {
    const url = new URL(coordinator);
    url.hostname = String(nodename);
    url.port = String(nodeport);
    return url.href;
  });
  return { coordinator, workers };
}

/** Returns the URL of another database of the same server. */
export function databaseAt(url: string, name: string): string {
  const other = new URL(url);
  other.pathname = `/${name}`;
  return other.href;
}

/** Creates a database with Citus on every node, with the tables of the service in none. It is dropped after the test. */
export async function createCitusDatabase(
  t: Pick<TestContext, 'after'>,
  { coordinator, workers }: CitusNodes,
  workersInUse = workers.length,
): Promise<CitusNodes> {
  const name = `plant_store_${randomBytes(6).toString('hex')}`;
  const servers = [coordinator, ...workers];
  await Promise.all(
    servers.map(async (server) => {
      await execute(server, `CREATE DATABASE ${name}`);
      t.after(() => execute(server, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`));
      await execute(databaseAt(server, name), 'CREATE EXTENSION citus');
    }),
  );
  const nodes = {
    coordinator: databaseAt(coordinator, name),
    workers: workers.map((worker) => databaseAt(worker, name)),
  };
  await execute(nodes.coordinator, `SELECT citus_set_coordinator_host(${addressOf(coordinator)})`);
  for (const worker of nodes.workers.slice(0, workersInUse)) await addWorker(nodes, worker);
  return nodes;
}

export async function addWorker({ coordinator }: CitusNodes, worker: string): Promise<void> {
  await execute(coordinator, `SELECT citus_add_node(${addressOf(worker)})`);
}

/** Creates the tables of the service and distributes them, as docs/postgresql.md says. */
export async function distributeTables({ coordinator }: CitusNodes): Promise<void> {
  await migrateStore(coordinator);
  await execute(coordinator, DISTRIBUTE);
}

/** Makes a database distribute the tables of the service as soon as a migration creates them. */
export async function distributeOnCreation({ coordinator }: CitusNodes): Promise<void> {
  const steps = DISTRIBUTE.split('\n').flatMap((line) => {
    const table = /create_(?:distributed|reference)_table\('(\w+)'/.exec(line)?.[1];
    if (table === undefined) return [];
    const distributed = `EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('${table}'))`;
    const statement = line.replace(/^SELECT/, 'PERFORM');
    return [`IF to_regclass('${table}') IS NOT NULL AND NOT ${distributed} THEN ${statement} END IF;`];
  });
  await execute(
    coordinator,
    `CREATE FUNCTION distribute_tables() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
       SET LOCAL citus.multi_shard_modify_mode = 'sequential';
       ${steps.join('\n')}
     END $$;
     CREATE EVENT TRIGGER distribute_tables ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
       EXECUTE FUNCTION distribute_tables()`,
  );
}

/** Ends all connections to a database on its servers, also those of Citus, so that it can be copied. */
export async function disconnect(servers: CitusNodes, database: string): Promise<void> {
  for (const server of [servers.coordinator, ...servers.workers]) {
    const others = `FROM pg_stat_activity WHERE datname = '${database}'`;
    await execute(server, `SELECT pg_terminate_backend(pid) ${others}`);
    await until(async () => (await rowsOf(server, `SELECT pid ${others}`)).length === 0);
  }
}

/** The shard of plants of an owner, and the URL of the worker that has it. */
export async function shardOf(
  { coordinator, workers }: CitusNodes,
  owner: string,
): Promise<{ readonly id: string; readonly worker: string }> {
  const [row] = await rowsOf(
    coordinator,
    `SELECT shardid, nodename || ':' || nodeport AS host FROM pg_dist_shard_placement
      WHERE shardid = get_shard_id_for_distribution_column('plants', '${owner}')`,
  );
  const worker = workers.find((one) => new URL(one).host === row?.host);
  if (worker === undefined) throw new Error(`no worker has the plants of ${owner}`);
  return { id: String(row?.shardid), worker };
}

/** Moves a shard of plants, and the one of the keys of the same owners, between workers while they are in use. */
export async function moveShard(
  { coordinator }: CitusNodes,
  shard: { readonly id: string; readonly worker: string },
  to: string,
): Promise<void> {
  await execute(
    coordinator,
    `SELECT citus_move_shard_placement(${shard.id}, ${addressOf(shard.worker)}, ${addressOf(to)}, 'force_logical')`,
  );
}

/** Spreads the shards over all workers while they are in use. */
export async function rebalance({ coordinator }: CitusNodes): Promise<void> {
  await execute(coordinator, "SELECT citus_rebalance_start(shard_transfer_mode => 'force_logical')");
  await execute(coordinator, 'SELECT citus_rebalance_wait()');
}

/** Resolves when Citus has ended every transaction that a lost worker left prepared. */
export async function transactionsEnded({ workers }: CitusNodes): Promise<void> {
  for (const worker of workers)
    await until(async () => {
      const prepared = await rowsOf(
        worker,
        'SELECT gid FROM pg_prepared_xacts WHERE database = current_database()',
      );
      return prepared.length === 0;
    });
}

function addressOf(url: string): string {
  const { hostname, port } = new URL(url);
  return `'${hostname}', ${port || '5432'}`;
}
