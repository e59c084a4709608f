import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import pg from 'pg';

/** A kind of store that every suite runs on. */
export interface TestEngine {
  readonly name: string;
  /** The URL of a new, empty store, which goes away after the test. */
  freshUrl(t: Pick<TestContext, 'after'>): Promise<string>;
}

export const engines: readonly TestEngine[] = [
  {
    name: 'sqlite',
    freshUrl: async (t) => `sqlite:${join(await freshFolder(t), 'plants.db')}`,
  },
  {
    name: 'postgres',
    freshUrl: freshDatabase,
  },
];

/** A new database on the server of the tests (test/global-setup.ts). */
async function freshDatabase(t: Pick<TestContext, 'after'>): Promise<string> {
  const server = process.env.TEST_DATABASE_URL;
  if (server === undefined)
    throw new Error('run the tests by `npm test`, which starts a PostgreSQL for them');
  const name = `test_${randomBytes(8).toString('hex')}`;
  await onServer(server, `CREATE DATABASE ${name}`);
  t.after(() => onServer(server, `DROP DATABASE ${name} WITH (FORCE)`));
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

async function onServer(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}

/** A new folder, which goes away after the test. */
export async function freshFolder(t: Pick<TestContext, 'after'>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
