import { resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** How long a write waits for another process that writes to the same file. */
const WRITE_LOCK_TIMEOUT_MS = 5_000;

/** How long a read may wait; only recovery after a crash makes it wait at all. */
const READ_LOCK_TIMEOUT_MS = 1_000;

/** Opens the one connection that writes. Its checkpoints are the caller's to run: an automatic one hides its errors. */
export function openForWriting(file: string, lockTimeoutMs = WRITE_LOCK_TIMEOUT_MS): DatabaseSync {
  return open(
    file,
    lockTimeoutMs,
    'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0',
  );
}

/** Opens a connection that only reads, next to the one that writes. */
export function openForReading(file: string, lockTimeoutMs = READ_LOCK_TIMEOUT_MS): DatabaseSync {
  return open(file, lockTimeoutMs, 'PRAGMA query_only = ON');
}

/** Runs work in a transaction that no other writes beside. It ends as `endFor` says, and with a rollback if the work throws. */
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

/** The same for work that takes its time, where nothing else uses the connection meanwhile. */
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

// What fails may have rolled it back already, as a full disk does (https://sqlite.org/lang_transaction.html, §3).
function rollBack(db: DatabaseSync): void {
  if (db.isTransaction) db.exec('ROLLBACK');
}

// SQLite gives names such as `:memory:` and `file:…` a meaning; a path has none.
function open(file: string, lockTimeoutMs: number, pragmas: string): DatabaseSync {
  const db = new DatabaseSync(resolve(file), { timeout: lockTimeoutMs });
  try {
    db.exec(pragmas);
    return db;
  } catch (error: unknown) {
    db.close();
    throw error;
  }
}
