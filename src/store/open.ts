import { existsSync } from 'node:fs';
import { type Engine, type Store, StoreNotOpened, type StoreOptions } from '../store.ts';
import { createGroupCommit } from './group-commit.ts';

const MAX_BATCH = 1_024;
const MAX_WAITING = 10_000;

/**
 * Opens the store that a URL names, after bringing its schema up to date: `sqlite:data/plants.db`.
 * Rejects with StoreNotOpened, with a message for the operator.
 */
export async function openStore(url: string, options: StoreOptions): Promise<Store> {
  const engine = await openEngine(url, options);
  const writes = createGroupCommit({
    commit: (batch) => engine.commit(batch),
    maxBatch: MAX_BATCH,
    maxInFlight: 1,
    maxWaiting: MAX_WAITING,
  });
  return {
    ...engine,
    write: (write) => writes.write(write),
    close: async () => {
      await writes.close();
      await engine.close();
    },
  };
}

async function openEngine(url: string, options: StoreOptions): Promise<Engine> {
  const file = sqliteFile(url);
  const { openSqlite } = await import('./sqlite.ts');
  return openSqlite(file, options);
}

/** Brings the schema of a store up to date and resolves to the names of the migrations it applied. */
export async function migrateStore(url: string): Promise<readonly string[]> {
  const file = sqliteFile(url);
  const { migrateSqlite } = await import('./sqlite-migrate.ts');
  return migrateSqlite(file);
}

/** Whether there is a file for an embedded store. */
export function storeExists(url: string): boolean {
  return existsSync(sqliteFile(url));
}

function sqliteFile(url: string): string {
  const match = /^sqlite:(.+)$/.exec(url);
  if (match?.[1] === undefined) {
    throw new StoreNotOpened('the database URL must be sqlite:FILE, such as sqlite:data/plants.db');
  }
  return match[1];
}
