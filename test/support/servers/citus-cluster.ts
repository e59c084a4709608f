import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { type PostgresServer, type Programs, startPostgres } from './postgres-server.ts';

/**
 * Settings of each server. Statistics are off, since Citus would send them to its makers. docs/postgresql.md
 * explains `citus.recover_2pc_interval`.
 */
const SETTINGS = [
  "shared_preload_libraries = 'citus'",
  "citus.node_conninfo = 'sslmode=disable'",
  'citus.enable_statistics_collection = off',
  "citus.recover_2pc_interval = '5s'",
  'wal_level = logical',
  'max_worker_processes = 200',
];

interface CitusCluster {
  readonly coordinator: PostgresServer;
  readonly workers: readonly PostgresServer[];
}

/** Starts a coordinator and two workers, which do not know each other yet. They are removed after the test. */
export async function startCitusCluster(
  t: Pick<TestContext, 'after'>,
  programs: Programs,
  settings: readonly string[] = [],
): Promise<CitusCluster> {
  const start = async () => {
    const server = await startPostgres([...SETTINGS, ...settings], programs);
    t.after(() => server.remove());
    return server;
  };
  const [coordinator, ...workers] = await Promise.all([start(), start(), start()]);
  return { coordinator, workers };
}

/**
 * Finds the programs of the PostgreSQL that `pgConfig` describes. Undefined if this PostgreSQL lacks Citus.
 */
export function findCitus(pgConfig: string): Programs | undefined {
  const ask = (what: string): string =>
    spawnSync(pgConfig, [what], { encoding: 'utf8' }).stdout?.trim() ?? '';
  const [folder, shared] = [ask('--bindir'), ask('--sharedir')];
  if (folder === '' || !existsSync(join(shared, 'extension', 'citus.control'))) return undefined;
  return { initdb: join(folder, 'initdb'), postgres: join(folder, 'postgres') };
}
