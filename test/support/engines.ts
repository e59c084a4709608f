import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { TestContext } from 'node:test';
import pg from 'pg';
import { connectionOptions, loadConfig } from '../../src/config.ts';

/**
 * How stores are opened unless a test is about just that: as the service does by default, with time enough for a busy
 * machine to carry out what is asked at once.
 */
export const connections = connectionOptions(
  loadConfig({ databaseAcquireTimeout: '30000', databaseStatementTimeout: '30000' }, {}),
);

/** A kind of store that every suite runs on. */
export interface TestEngine {
  readonly name: string;
  /** The URL of a new, empty store, which goes away after the test. */
  freshUrl(t: Pick<TestContext, 'after'>): Promise<string>;
}

export const engines: readonly TestEngine[] = [
  {
    name: 'sqlite',
    freshUrl: async () => `sqlite:${join(await freshFolder(), 'plants.db')}`,
  },
  {
    name: 'postgres',
    freshUrl: freshDatabase,
  },
];

/** A new database on the server of the tests (test/support/global-setup.ts). */
async function freshDatabase(t: Pick<TestContext, 'after'>): Promise<string> {
  const server = process.env.TEST_DATABASE_URL;
  if (!server) throw new Error('run the tests by `npm test`, which starts a PostgreSQL for them');
  const name = `test_${randomBytes(8).toString('hex')}`;
  await execute(server, `CREATE DATABASE ${name}`);
  t.after(() => execute(server, `DROP DATABASE ${name} WITH (FORCE)`));
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

/** Runs SQL on a store behind the back of the program. */
export async function execute(url: string, sql: string): Promise<void> {
  if (url.startsWith('sqlite:')) {
    using db = new DatabaseSync(fileOf(url));
    db.exec(sql);
  } else await onServer(url, (client) => client.query(sql));
}

/** The rows that a query finds in a store. */
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

/** A new folder, which goes away with the process: not after the test, when a service may still close its store in it. */
export async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-'));
  folders.add(folder);
  return folder;
}
