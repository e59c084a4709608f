import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { PATIENCE_MS } from '../patience.ts';

/** Blocks all commits to a store until `release` is called. */
export async function holdWrites(url: string): Promise<{ release(): Promise<void> }> {
  if (url.startsWith('sqlite:')) {
    const db = new DatabaseSync(url.slice('sqlite:'.length), { timeout: PATIENCE_MS });
    db.exec('BEGIN IMMEDIATE');
    return { release: async () => db.close() };
  }
  const client = new pg.Client({ connectionString: url });
  // The server may stop first.
  client.on('error', () => undefined);
  await client.connect();
  await client.query('BEGIN; LOCK TABLE plants IN EXCLUSIVE MODE');
  return { release: () => client.end() };
}
