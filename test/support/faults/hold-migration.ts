import type { TestContext } from 'node:test';
import pg from 'pg';
import { postgres, rowsOf } from '../engines.ts';
import { until } from '../patience.ts';

const WAITING = `SELECT pid FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock'`;

/** An empty PostgreSQL database whose migration is blocked. */
interface HeldMigration {
  readonly databaseUrl: string;
  /** Resolves when a service waits in the middle of its migration. */
  waits(): Promise<void>;
  /** Lets the migration continue. */
  release(): Promise<void>;
}

/** Creates a database and blocks its migration until `release` is called. Removes the database after the test. */
export async function holdMigration(t: Pick<TestContext, 'after'>): Promise<HeldMigration> {
  const databaseUrl = await postgres.freshUrl(t);
  const client = new pg.Client({ connectionString: databaseUrl });
  // The removal of the database ends the connection.
  client.on('error', () => undefined);
  await client.connect();
  // A migration that creates the same table waits for the end of this transaction.
  await client.query('BEGIN; CREATE TABLE plants ()');
  return {
    databaseUrl,
    waits: () => until(async () => (await rowsOf(databaseUrl, WAITING)).length === 1),
    release: () => client.end(),
  };
}
