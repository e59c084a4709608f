import { chmodSync, closeSync, existsSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { StoreNotOpened } from '../store.ts';
import { applyMigrations } from './migrations.ts';
import { reasonOf } from './sqlite-errors.ts';

const MIGRATIONS = new URL('./migrations/sqlite/', import.meta.url);

/** How long a write waits for another process that writes to the same file. */
const WRITE_LOCK_TIMEOUT_MS = 5_000;

/** How long a read may wait; only recovery after a crash makes it wait at all. */
const READ_LOCK_TIMEOUT_MS = 1_000;

/** Opens the one connection that writes. Its checkpoints are the caller's to run: an automatic one hides its errors. */
export function openForWriting(file: string): DatabaseSync {
  const db = new DatabaseSync(file, { timeout: WRITE_LOCK_TIMEOUT_MS });
  db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0');
  return db;
}

/** Opens a connection that only reads, next to the one that writes. */
export function openForReading(file: string): DatabaseSync {
  const db = new DatabaseSync(file, { timeout: READ_LOCK_TIMEOUT_MS });
  db.exec('PRAGMA query_only = ON');
  return db;
}

/**
 * Creates the file (for its owner alone) where there is none and applies the migrations it lacks, all or none.
 * Resolves to their names; rejects with StoreNotOpened.
 */
export async function migrateSqlite(file: string): Promise<readonly string[]> {
  try {
    createPrivately(file);
    const db = openForWriting(file);
    try {
      return await migrate(db);
    } finally {
      db.close();
    }
  } catch (error: unknown) {
    if (error instanceof StoreNotOpened) throw error;
    throw new StoreNotOpened(`cannot open the store ${file}: ${reasonOf(error)}`, { cause: error });
  }
}

function createPrivately(file: string): void {
  if (existsSync(file)) return;
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  closeSync(openSync(file, 'a', 0o600));
  chmodSync(file, 0o600);
}

async function migrate(db: DatabaseSync): Promise<readonly string[]> {
  db.exec('BEGIN IMMEDIATE');
  try {
    db.exec('CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY) STRICT');
    const names = await applyMigrations(MIGRATIONS, {
      run: (sql) => db.exec(sql),
      applied: () =>
        db
          .prepare('SELECT name FROM migrations')
          .all()
          .map((row) => String(row.name)),
      record: (name) => {
        db.prepare('INSERT INTO migrations (name) VALUES (?)').run(name);
      },
    });
    db.exec('COMMIT');
    return names;
  } catch (error: unknown) {
    if (db.isTransaction) db.exec('ROLLBACK');
    throw error;
  }
}
