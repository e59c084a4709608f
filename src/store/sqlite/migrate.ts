import { chmodSync, closeSync, existsSync, mkdirSync, openSync, rmdirSync } from 'node:fs';
import { dirname } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { setTimeout } from 'node:timers/promises';
import { syncFolder } from '../folder-sync.ts';
import { applyMigrations, missingMigrations } from '../migrations.ts';
import { FIND_ANY_ROW } from '../rows.ts';
import { type MigrationOptions, StoreNotOpened } from '../store.ts';
import { inLongTransaction, openForReading, openForWriting } from './connection.ts';
import { isLocked, notOpened, whyNotWritable } from './errors.ts';
import { closeStore } from './files/close-store.ts';
import { watchFileIdentity } from './files/file-identity.ts';
import { rejectUnusablePath } from './files/store-path.ts';

export const SQLITE_MIGRATIONS = 'store/sqlite/migrations/';

/** Creates the table of the applied migrations, which no migration creates. */
export const CREATE_MIGRATIONS = 'CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY) STRICT';

/** Max milliseconds to wait while another process migrates the same file. */
export const LOCK_TIMEOUT_MS = 10_000;
const LOCK_RETRY_MS = 20;

/** Tables that every version of the store has. */
const TABLES = ['migrations', 'plants', 'tokens', 'idempotency_keys'];

/**
 * Creates the file (mode 0600) if it does not exist, and applies the missing migrations in one transaction.
 * Resolves to the names of these migrations. Rejects with StoreNotOpened on any failure, and if `mustExist` is true
 * and the file has no tables.
 */
export async function migrateSqlite(
  file: string,
  { mustExist = false, onLogLeft, onMigrate }: MigrationOptions = {},
): Promise<readonly string[]> {
  let isNew = false;
  try {
    isNew = !mustExist && createPrivately(file);
    return await withoutBlocking(async () => {
      // Also rejects a file that is no store, before it is opened for writing.
      const isCurrent = isMigrated(file, mustExist);
      // Commands that only read must not wait for a writer.
      if (isCurrent && mustExist) return [];
      const db = openForWriting(file, 0);
      try {
        const applied = await inLongTransaction(db, () => migrate(db, onMigrate));
        const left = closeStore(db, watchFileIdentity(file, 0));
        if (left !== undefined) onLogLeft?.(left);
        return applied;
      } finally {
        if (db.isOpen) db.close();
      }
    });
  } catch (error: unknown) {
    const failure = notOpened(file, error);
    if (!isNew) throw failure;
    // The file stays: another process may have begun to use it.
    throw new StoreNotOpened(`${failure.message}. The file was created, without plants`, { cause: error });
  }
}

/**
 * Resolves to false if the store in a file has rows. Rejects with StoreNotOpened if the file cannot be created, migrated or
 * written. Changes nothing.
 */
export async function isFillable(file: string): Promise<boolean> {
  try {
    if (!existsSync(file)) {
      rejectUnlessCreatable(file);
      return true;
    }
    return await withoutBlocking(async () => {
      const db = openForReading(file, 0);
      try {
        if (hasStore(db, file)) {
          if (!isEmpty(db)) return false;
          missingMigrations(SQLITE_MIGRATIONS, appliedMigrations(db));
        }
        rejectUnlessWritable(file);
        // Takes the write lock, as the migration will. `query_only` would prevent it.
        db.exec('PRAGMA query_only = OFF; BEGIN IMMEDIATE; ROLLBACK');
        return true;
      } finally {
        db.close();
      }
    });
  } catch (error: unknown) {
    throw notOpened(file, error);
  }
}

// Retries while another process locks the file. Waiting inside SQLite would block this thread.
async function withoutBlocking<T>(work: () => Promise<T>): Promise<T> {
  for (const deadline = performance.now() + LOCK_TIMEOUT_MS; ; await setTimeout(LOCK_RETRY_MS)) {
    try {
      return await work();
    } catch (error: unknown) {
      if (!isLocked(error) || performance.now() > deadline) throw error;
    }
  }
}

// Returns true if it has created the file.
function createPrivately(file: string): boolean {
  rejectUnusablePath(file);
  if (existsSync(file)) return false;
  const folder = dirname(file);
  const made: string[] = [];
  try {
    makeFolders(folder, made);
    closeSync(openSync(file, 'a', 0o600));
  } catch (error: unknown) {
    removeFolders(made);
    throw error;
  }
  chmodSync(file, 0o600);
  syncFolder(folder);
  return true;
}

function rejectUnlessCreatable(file: string): void {
  rejectUnusablePath(file);
  const made: string[] = [];
  try {
    makeFolders(dirname(file), made);
    rejectUnlessWritable(file);
  } finally {
    removeFolders(made);
  }
}

function rejectUnlessWritable(file: string): void {
  const error = whyNotWritable(file);
  if (error !== undefined) throw error;
}

// Creates missing folders one by one, and adds them to `made`. `mkdirSync` with `recursive` never returns if the
// parent rejects new folders, as /proc does.
function makeFolders(folder: string, made: string[]): void {
  if (existsSync(folder)) return;
  makeFolders(dirname(folder), made);
  makeFolder(folder, made);
  syncFolder(dirname(folder));
}

function makeFolder(folder: string, made: string[]): void {
  try {
    mkdirSync(folder, { mode: 0o700 });
    made.push(folder);
  } catch (error: unknown) {
    // Ignores the error if another process that opens the same store has created the folder.
    if (existsSync(folder)) return;
    throw error;
  }
}

// Another process may use a folder meanwhile, which is then not empty.
function removeFolders(folders: readonly string[]): void {
  try {
    for (const folder of folders.toReversed()) rmdirSync(folder);
  } catch {
    // The error of the file says more.
  }
}

/** Returns the error for a file without tables, such as an empty one. */
export function noStoreYet(file: string): StoreNotOpened {
  return new StoreNotOpened(
    `there is no store at ${file} yet: the file is empty, and the next start creates a store in it; if there should be one, put its file back`,
  );
}

// Returns whether a store lacks no migration. Rejects a database without tables if a store must exist. Runs before
// `openForWriting`, which permanently changes the journal mode of the file.
function isMigrated(file: string, mustExist: boolean): boolean {
  const db = openForReading(file, 0);
  try {
    if (hasStore(db, file)) return missingMigrations(SQLITE_MIGRATIONS, appliedMigrations(db)).length === 0;
    if (mustExist) throw noStoreYet(file);
    return false;
  } finally {
    db.close();
  }
}

/** Returns false for a database without tables. Throws StoreNotOpened for that of another program. */
function hasStore(db: DatabaseSync, file: string): boolean {
  // One read: another process may create the tables meanwhile.
  const tables = tablesOf(db);
  if (areOfStore(tables)) return true;
  if (tables.length === 0) return false;
  throw new StoreNotOpened(
    `${file} is the database of another program, or lacks a table of a store (${TABLES.join(', ')}); name another file, or restore a backup`,
  );
}

/** Returns whether a database has the tables of a store. Other programs have tables with such names too. */
export function isStore(db: DatabaseSync): boolean {
  return areOfStore(tablesOf(db));
}

function areOfStore(tables: readonly string[]): boolean {
  return TABLES.every((table) => tables.includes(table));
}

export function tablesOf(db: DatabaseSync): readonly string[] {
  const rows = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
  return rows.map(({ name }) => String(name));
}

/** Returns whether a store has no rows. */
export function isEmpty(db: DatabaseSync): boolean {
  return db.prepare(FIND_ANY_ROW).get() === undefined;
}

/** Returns the names of the migrations in the table `migrations`, which must exist. */
export function appliedMigrations(db: DatabaseSync): readonly string[] {
  // Without AS, a column `Name` of a damaged table would keep this name.
  const rows = db.prepare('SELECT name AS name FROM migrations').all();
  return rows.map(({ name }) => String(name));
}

async function migrate(
  db: DatabaseSync,
  onMigrate: MigrationOptions['onMigrate'],
): Promise<readonly string[]> {
  db.exec(CREATE_MIGRATIONS);
  return applyMigrations(SQLITE_MIGRATIONS, {
    run: (sql) => db.exec(sql),
    applied: () => appliedMigrations(db),
    record: (name) => {
      db.prepare('INSERT INTO migrations (name) VALUES (?)').run(name);
    },
    onMigrate,
  });
}
