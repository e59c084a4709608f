import { accessSync, constants, existsSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { codeOf } from '../../thrown-errors.ts';
import { type LogLeft, StoreNotOpened } from '../store.ts';
import { isLocked, reasonOf } from './errors.ts';

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
 * Returns a function that checks whether an open database and its log are still at their paths. If one was moved, removed
 * or replaced, SQLite keeps writing to it (https://sqlite.org/howtocorrupt.html, §2.4 and §1.4), and the function returns
 * the reason for a fatal error. Otherwise, and if a path cannot be read, it returns undefined. It notices a log that
 * another process has made again only `logCheckMs` milliseconds after the last look. The log exists from the first read of
 * a connection on, and until the last one is closed.
 */
export function watchFileIdentity(file: string, logCheckMs: number): () => string | undefined {
  const { dev, ino } = statSync(file);
  const log = `${withoutLinks(file)}-wal`;
  let logIno = statSync(log, { throwIfNoEntry: false })?.ino;
  let lookedAt = performance.now();
  return () => {
    try {
      const found = statSync(file, { throwIfNoEntry: false });
      if (found?.dev !== dev || found.ino !== ino) return gone(file);
      if (!existsSync(log)) return gone(log);
      // A file whose times were read must write them at the next fsync, which then takes 50 µs longer.
      if (performance.now() - lookedAt < logCheckMs) return undefined;
      lookedAt = performance.now();
      const logFound = statSync(log).ino;
      logIno ??= logFound;
      return logIno === logFound ? undefined : gone(log);
    } catch {
      return undefined;
    }
  };
}

function gone(file: string): string {
  return `${file} was moved, replaced or removed while it was open, so writes no longer reach that path`;
}

/**
 * Tries again to empty the write-ahead log of a file that this process has closed: SQLite does so when the last
 * connection closes, but hides the error. Returns the log and that error. Returns undefined if the database file has
 * all writes, or if another process uses it, which then empties the log.
 */
export function emptyLog(file: string): LogLeft | undefined {
  const log = ifItHasContent(`${withoutLinks(file)}-wal`);
  if (log === undefined) return undefined;
  let db: DatabaseSync | undefined;
  try {
    db = openForWriting(file, 0);
    db.prepare('PRAGMA wal_checkpoint(PASSIVE)').get();
    return undefined;
  } catch (error: unknown) {
    return isLocked(error) ? undefined : { file: log, reason: reasonOf(error) };
  } finally {
    db?.close();
  }
}

/**
 * Returns the file that SQLite uses for a symbolic link: the files with endings such as `-wal` lie next to it.
 * Follows links to a file that does not exist yet too.
 */
export function withoutLinks(file: string): string {
  try {
    return realpathSync(file);
  } catch (error: unknown) {
    return codeOf(error) === 'ENOENT' ? withoutDanglingLink(file) : file;
  }
}

function withoutDanglingLink(file: string): string {
  try {
    return withoutLinks(resolve(dirname(file), readlinkSync(file)));
  } catch {
    return file;
  }
}

/**
 * Throws StoreNotOpened if the file is missing or empty, but its log has content. SQLite would delete that log.
 * An empty file with a rollback journal is an interrupted first start, which SQLite repairs.
 */
export function rejectLogWithoutDatabase(file: string): void {
  const place = withoutLinks(file);
  // Looks for the logs first: another process may create file and logs now.
  const [log, journal] = ['-wal', '-journal'].map((ending) => `${place}${ending}`).map(ifItHasContent);
  const isMissing = !existsSync(place);
  const left = isMissing ? (log ?? journal) : log;
  if (left === undefined || ifItHasContent(place) !== undefined) return;
  throw new StoreNotOpened(
    `${file} is ${isMissing ? 'missing' : 'empty'}, but ${left} is there and may hold its last writes; put that same file back. To restore a backup or to start empty, first move ${left} away`,
  );
}

// A file that another process removes meanwhile, or that cannot exist, has none.
function ifItHasContent(file: string): string | undefined {
  try {
    return statSync(file).size > 0 ? file : undefined;
  } catch {
    return undefined;
  }
}

// Uses an absolute path, since names such as `:memory:` and `file:…` have a special meaning in SQLite.
function open(file: string, lockTimeoutMs: number, pragmas: string): DatabaseSync {
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
  rejectLogWithoutDatabase(file);
  // SQLite opens a file that is read-only without an error. It would give its log and index the same mode,
  // which later starts could not write.
  if (existsSync(file)) accessSync(file, constants.W_OK);
  const db = new DatabaseSync(resolve(file), { timeout: lockTimeoutMs });
  try {
    // Sorts in memory: SQLite would write temporary files to a folder that may be full or read-only. The largest sort is
    // that of all tokens, which are some hundred bytes each.
    db.exec(`PRAGMA temp_store = MEMORY; ${pragmas}`);
    return db;
  } catch (error: unknown) {
    db.close();
    throw error;
  }
}
