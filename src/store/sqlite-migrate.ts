import { chmodSync, closeSync, existsSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { StoreNotOpened } from '../store.ts';
import { applyMigrations } from './migrations.ts';
import { reasonOf } from './sqlite-errors.ts';
import { openForWriting } from './sqlite-file.ts';

const MIGRATIONS = new URL('./migrations/sqlite/', import.meta.url);

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
