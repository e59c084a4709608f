// cspell:words fullfsync
import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { dirname, isAbsolute } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { codeOf } from '../../thrown-errors.ts';
import { syncFolder } from '../folder-sync.ts';
import { StoreNotOpened } from '../store.ts';
import { rejectUnusablePath, withoutLinks } from './files/store-path.ts';

/** Milliseconds that a write waits for the lock of another process. */
export const WRITE_LOCK_TIMEOUT_MS = 5_000;

/**
 * Milliseconds that the service waits for the lock after a batch waited in vain. The writes behind that batch
 * have waited too, and a stop has no time for another full wait.
 */
export const REPEATED_LOCK_TIMEOUT_MS = 1_000;

/**
 * Milliseconds that a read waits for a lock. Reads wait only while SQLite recovers the file after a crash, and while
 * another process closes the last connection, which waits for the disk.
 */
const READ_LOCK_TIMEOUT_MS = 5_000;

/**
 * Max bytes that the file of the write-ahead log keeps when the log begins again after a checkpoint. Without a limit, it
 * would keep its largest size. The log of the usual loads is far smaller, so that its file is never cut and grown again.
 */
export const LOG_LEFT_BYTES = 64 * 1024 * 1024;

/** Characters of created plants after which the service runs a checkpoint, if not earlier. `bulk.ts` uses four times as many. */
export const CHARACTERS_BETWEEN_CHECKPOINTS = 4 * 1024 * 1024;

/**
 * Opens a connection for writes. The caller must run checkpoints: automatic checkpoints hide their errors. On macOS, each sync
 * also empties the cache of the disk (https://sqlite.org/pragma.html#pragma_fullfsync); elsewhere, fsync does.
 */
export function openForWriting(file: string, lockTimeoutMs = WRITE_LOCK_TIMEOUT_MS): DatabaseSync {
  return open(
    file,
    lockTimeoutMs,
    `PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;
     PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
     PRAGMA journal_size_limit = ${LOG_LEFT_BYTES}; PRAGMA schema_version`,
    () => syncFolderOf(file),
  );
}

// The first read has created the log. SQLite makes its name durable too, but ignores an error.
function syncFolderOf(file: string): void {
  try {
    syncFolder(dirname(withoutLinks(file)));
  } catch (error: unknown) {
    // A user who may not read the folder cannot sync it, nor can SQLite.
    if (!['EACCES', 'EPERM'].includes(codeOf(error))) throw error;
  }
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

function open(
  file: string,
  lockTimeoutMs: number,
  pragmas: string,
  onOpened: () => void = () => undefined,
): DatabaseSync {
  const found = statSync(file, { throwIfNoEntry: false });
  if (found?.isDirectory()) throw new StoreNotOpened(`${file} is a folder; name a file in it`);
  if (found !== undefined && !found.isFile())
    throw new StoreNotOpened(`${file} is not a regular file; name another one`);
  // Each name would have its own log and locks, so that commits over one name would damage those over another
  // (https://sqlite.org/howtocorrupt.html, §2.5).
  if (found !== undefined && found.nlink > 1)
    throw new StoreNotOpened(
      `${file} has another name too (a hard link); copy the file to a new one, and remove or replace the old names`,
    );
  rejectUnusablePath(file);
  // SQLite opens a file that is read-only without an error. It would give its log and index the same mode,
  // which later starts could not write.
  if (existsSync(file)) accessSync(file, constants.W_OK);
  // Names such as `:memory:` and `file:…` have a special meaning in SQLite.
  const db = new DatabaseSync(isAbsolute(file) ? file : `./${file}`, { timeout: lockTimeoutMs });
  try {
    // Sorts in memory: SQLite would write temporary files to a folder that may be full or read-only. The largest sort is
    // that of all tokens, which are some hundred bytes each.
    db.exec(`PRAGMA temp_store = MEMORY; ${pragmas}`);
    onOpened();
    return db;
  } catch (error: unknown) {
    db.close();
    throw error;
  }
}
