import { realpathSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { StoreNotOpened } from '../store.ts';

/** Milliseconds that a write waits for the lock of another process. */
export const WRITE_LOCK_TIMEOUT_MS = 5_000;

/**
 * Milliseconds that a read waits for a lock. Reads wait only while SQLite recovers the file after a crash.
 */
const READ_LOCK_TIMEOUT_MS = 1_000;

/**
 * Opens a connection for writes. The caller must run checkpoints: automatic checkpoints hide their errors.
 */
export function openForWriting(file: string, lockTimeoutMs = WRITE_LOCK_TIMEOUT_MS): DatabaseSync {
  return open(
    file,
    lockTimeoutMs,
    'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0',
  );
}

export function openForReading(file: string, lockTimeoutMs = READ_LOCK_TIMEOUT_MS): DatabaseSync {
  return open(file, lockTimeoutMs, 'PRAGMA query_only = ON');
}

/**
 * Runs `work` in a write transaction. SQLite allows only one write transaction at a time. `endFor` decides
 * from the result of `work` whether to commit or roll back. If `work` throws, the transaction is rolled back.
 */
export function inTransaction<T>(
  db: DatabaseSync,
  work: () => T,
  endFor: (result: T) => 'COMMIT' | 'ROLLBACK' = () => 'COMMIT',
): T {
  db.exec('BEGIN IMMEDIATE');
  try {
    const result = work();
    db.exec(endFor(result));
    return result;
  } catch (error: unknown) {
    rollBack(db);
    throw error;
  }
}

/**
 * Runs asynchronous `work` in a write transaction. Until the promise of `work` settles, only `work` may use
 * the connection.
 */
export async function inLongTransaction<T>(db: DatabaseSync, work: () => Promise<T>): Promise<T> {
  db.exec('BEGIN IMMEDIATE');
  try {
    const result = await work();
    db.exec('COMMIT');
    return result;
  } catch (error: unknown) {
    rollBack(db);
    throw error;
  }
}

// Does nothing if SQLite has already rolled the transaction back, as after a full disk
// (https://sqlite.org/lang_transaction.html, §3).
function rollBack(db: DatabaseSync): void {
  if (db.isTransaction) db.exec('ROLLBACK');
}

/**
 * Returns the file that SQLite uses for a symbolic link: the files with endings such as `-wal` lie next to it.
 * Returns `file` if it does not exist yet.
 */
export function withoutLinks(file: string): string {
  try {
    return realpathSync(file);
  } catch {
    return file;
  }
}

// Uses an absolute path, since names such as `:memory:` and `file:…` have a special meaning in SQLite.
function open(file: string, lockTimeoutMs: number, pragmas: string): DatabaseSync {
  if (statSync(file, { throwIfNoEntry: false })?.isDirectory())
    throw new StoreNotOpened(`${file} is a folder; name a file in it`);
  const db = new DatabaseSync(resolve(file), { timeout: lockTimeoutMs });
  try {
    db.exec(pragmas);
    return db;
  } catch (error: unknown) {
    db.close();
    throw error;
  }
}
