import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { TestContext } from 'node:test';
import pg from 'pg';
import { connectionOptions, loadConfig } from '../../src/config.ts';
import { PATIENCE_MS, PATIENT_CONNECTIONS, until } from './patience.ts';

/** Options to open a store in tests: those of the service, with longer timeouts for a busy machine. */
export const connections = connectionOptions(loadConfig(PATIENT_CONNECTIONS, {}));

/** A store engine, on which every suite runs. */
export interface TestEngine {
  readonly name: string;
  /** Creates the URL of an empty store, which is deleted after the test. */
  freshUrl(t: Pick<TestContext, 'after'>): Promise<string>;
}

export const sqlite: TestEngine = {
  name: 'sqlite',
  freshUrl: async () => `sqlite:${join(await freshFolder(), 'plants.db')}`,
};

export const postgres: TestEngine = { name: 'postgres', freshUrl: freshDatabase };

export const engines: readonly TestEngine[] = [sqlite, postgres];

/**
 * Creates a database on the test server (test/support/global-setup.ts). If the test server has workers,
 * creates the database on each worker too. Environment variables can replace the options of CREATE and DROP
 * DATABASE.
 */
async function freshDatabase(t: Pick<TestContext, 'after'>): Promise<string> {
  const server = process.env.TEST_DATABASE_URL;
  if (!server)
    throw new Error('TEST_DATABASE_URL is not set; run the tests with `npm test`, which starts PostgreSQL');
  const name = `test_${randomBytes(8).toString('hex')}`;
  const servers = [server, ...(process.env.TEST_DATABASE_WORKERS?.split(' ') ?? [])];
  // Creates the database with `file_copy`, which takes less than half the server time of the default
  // `wal_log`.
  const { TEST_DATABASE_CREATION = 'STRATEGY file_copy', TEST_DATABASE_REMOVAL = 'WITH (FORCE)' } =
    process.env;
  const onAll = (sql: string) => Promise.all(servers.map((one) => execute(one, sql)));
  await onAll(`CREATE DATABASE ${name} ${TEST_DATABASE_CREATION}`);
  t.after(() => onAll(`DROP DATABASE ${name} ${TEST_DATABASE_REMOVAL}`));
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

/** Runs SQL directly on the database of a store, without the service. */
export async function execute(url: string, sql: string): Promise<void> {
  if (url.startsWith('sqlite:')) {
    using db = new DatabaseSync(fileOf(url), { timeout: PATIENCE_MS });
    db.exec(sql);
  } else await onServer(url, (client) => client.query(sql));
}

/** Makes all idempotency keys of a store older. No test can change the clock of PostgreSQL. */
export async function ageKeys(url: string, ms: number): Promise<void> {
  await execute(url, `UPDATE idempotency_keys SET first_used_at = first_used_at - ${ms}`);
}

/** Returns the rows of a query on a store. */
export async function rowsOf(
  url: string,
  sql: string,
): Promise<readonly Readonly<Record<string, unknown>>[]> {
  if (url.startsWith('sqlite:')) {
    using db = new DatabaseSync(fileOf(url), { readOnly: true });
    return db
      .prepare(sql)
      .all()
      .map((row) => ({ ...row }));
  }
  return onServer(url, async (client) => (await client.query<Record<string, unknown>>(sql)).rows);
}

/** Rows of `pg_stat_activity` of other clients of the same database: the rest of a query after SELECT. */
export const OTHER_SESSIONS = `FROM pg_stat_activity WHERE datname = current_database()
                                  AND pid <> pg_backend_pid() AND backend_type = 'client backend'`;

/** Returns the number of deadlocks in a database. First waits for the end of all sessions: the server counts them only then. */
export async function deadlocksIn(url: string): Promise<number> {
  await until(async () => (await rowsOf(url, `SELECT ${OTHER_SESSIONS}`)).length === 0);
  const [row] = await rowsOf(
    url,
    'SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()',
  );
  return Number(row?.deadlocks);
}

function fileOf(url: string): string {
  return url.slice('sqlite:'.length);
}

async function onServer<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return work(client).finally(() => client.end());
}

const folders = new Set<string>();

process.once('exit', () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/**
 * Creates a folder that is removed when the process exits. Removal after the test would be too early: a
 * service may still be closing its store.
 */
export async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-'));
  folders.add(folder);
  return folder;
}
