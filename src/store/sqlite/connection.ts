import {
  accessSync,
  constants,
  existsSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { codeOf } from '../../thrown-errors.ts';
import { syncFolder } from '../folder-sync.ts';
import { type LogLeft, StoreNotOpened } from '../store.ts';
import { isLocked, reasonOf, rejectLongPath } from './errors.ts';

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

/**
 * Opens a connection for writes. The caller must run checkpoints: automatic checkpoints hide their errors.
 */
export function openForWriting(file: string, lockTimeoutMs = WRITE_LOCK_TIMEOUT_MS): DatabaseSync {
  return open(
    file,
    lockTimeoutMs,
    `PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
     PRAGMA journal_size_limit = ${LOG_LEFT_BYTES}`,
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

/** Knows the files of an open store, and notices if they are no longer at their paths. */
interface FileIdentity {
  readonly database: string;
  readonly log: string;
  /**
   * Returns the reason for a fatal error if the database file or its log was moved, removed or replaced: SQLite keeps
   * writing to it (https://sqlite.org/howtocorrupt.html, §2.4 and §1.4). Otherwise, and if a path cannot be read, returns
   * undefined.
   */
  whyMoved(): string | undefined;
  /**
   * Returns what became of the database file if the log is still at its path, but that file is not: it is `missing`, or
   * another one was put there (`replaced`). Otherwise, and if a path cannot be read, returns undefined.
   */
  lostDatabase(): 'missing' | 'replaced' | undefined;
}

/**
 * Returns the identity of the files at a path, which must be those of an open connection that has read: its log exists
 * from its first read on, and until the last connection is closed. `whyMoved` notices a log that another process has made
 * again only `logCheckMs` milliseconds after the last look.
 */
export function watchFileIdentity(file: string, logCheckMs: number): FileIdentity {
  const database = withoutLinks(file);
  const log = `${database}-wal`;
  const isAt = rememberFile(file);
  let logIno = statSync(log, { throwIfNoEntry: false })?.ino;
  let lookedAt = performance.now();

  return {
    database,
    log,
    whyMoved: () => {
      try {
        if (!isAt(file)) return describeMoved(file);
        if (!existsSync(log)) return describeMoved(log);
        // A file whose times were read must write them at the next fsync, which then takes 50 µs longer.
        if (performance.now() - lookedAt < logCheckMs) return undefined;
        lookedAt = performance.now();
        const logFound = statSync(log).ino;
        logIno ??= logFound;
        return logIno === logFound ? undefined : describeMoved(log);
      } catch {
        return undefined;
      }
    },
    lostDatabase: () => {
      try {
        if (logIno === undefined || statSync(log).ino !== logIno || isAt(database)) return undefined;
        return existsSync(database) ? 'replaced' : 'missing';
      } catch {
        return undefined;
      }
    },
  };
}

/** Returns a function that returns whether the file that `file` names now is at a path. */
export function rememberFile(file: string): (path: string) => boolean {
  const { dev, ino } = statSync(file);
  return (path) => {
    const found = statSync(path, { throwIfNoEntry: false });
    return found?.dev === dev && found.ino === ino;
  };
}

export function describeMoved(file: string): string {
  return `${file} was moved, replaced or removed while it was open, so writes no longer reach that path`;
}

/**
 * Copies what it can of the log into the database file that a connection has opened. Does nothing if that file was
 * replaced: another process may use the log for the new file, which would then never get its writes.
 */
export function checkpoint(db: DatabaseSync, { lostDatabase }: FileIdentity): void {
  if (lostDatabase() !== 'replaced') db.prepare('PRAGMA wal_checkpoint(PASSIVE)').get();
}

/**
 * Closes the last connection of this process to a store, and empties its log: SQLite does so too, but hides an error.
 * Returns a log that may hold writes which the database file lacks. If that file was replaced, the log is renamed, since
 * the next connection would apply it to the new file. Returns undefined if nothing is left, or if another process uses
 * the store.
 */
export function closeStore(db: DatabaseSync, files: FileIdentity): LogLeft | undefined {
  const { database, log } = files;
  let failure: unknown;
  try {
    checkpoint(db, files);
  } catch (error: unknown) {
    failure = error;
  }
  // No other file can have the inode number of an open one.
  const lost = files.lostDatabase();
  db.close();
  if (lost === 'replaced') return setLogAside(database, log);
  if (lost === 'missing') return logWithoutDatabase(database, log);
  if (failure === undefined || isLocked(failure) || ifItHasContent(log) === undefined) return undefined;
  return { file: log, reason: reasonOf(failure), isSeparated: false };
}

/**
 * Renames a log that does not belong to the database file next to it, to a name that does not exist. Removes its index
 * (`-shm`) too, since another process may still use it for the old file.
 */
function setLogAside(database: string, log: string): LogLeft | undefined {
  let number = 1;
  while (existsSync(`${log}.${number}`)) number += 1;
  const aside = `${log}.${number}`;
  try {
    renameSync(log, aside);
  } catch (error: unknown) {
    // Another process that used the same files has renamed it.
    if (codeOf(error) === 'ENOENT') return undefined;
    const reason = `${database} was replaced, and the log could not be renamed (${reasonOf(error)}); move it away before anything opens ${database}`;
    return { file: log, reason, isSeparated: true };
  }
  try {
    rmSync(`${database}-shm`, { force: true });
    syncFolder(dirname(log));
  } catch {
    // The log has its new name, so the report is right. SQLite makes the index again if no process uses it.
  }
  const reason = `${database} was replaced, so the log was renamed; to use the old file, put it back there, and its log at ${log}`;
  return { file: aside, reason, isSeparated: true };
}

function logWithoutDatabase(database: string, log: string): LogLeft | undefined {
  if (ifItHasContent(log) === undefined) return undefined;
  const reason = `${database} is missing; put that same file back, or move the log away before another file takes its place`;
  return { file: log, reason, isSeparated: true };
}

/**
 * Returns the file that SQLite uses for a symbolic link: the files with endings such as `-wal` lie next to it.
 * Follows links to a file that does not exist yet too, also in new folders.
 */
export function withoutLinks(file: string): string {
  try {
    // Not `realpathSync`, which takes `..` after a link for the folder of the link, and may never return.
    return realpathSync.native(file);
  } catch (error: unknown) {
    return codeOf(error) === 'ENOENT' ? withoutDanglingLink(file) : file;
  }
}

function withoutDanglingLink(file: string): string {
  const folder = dirname(file);
  if (folder === file) return file;
  let link: string;
  try {
    link = readlinkSync(file);
  } catch {
    return join(withoutLinks(folder), basename(file));
  }
  return withoutLinks(isAbsolute(link) ? link : `${folder}/${link}`);
}

/**
 * Throws if a file cannot be a store because of its path or of the files next to it:
 * - StoreNotOpened if the file is missing or empty, but its log has content. SQLite would delete that log.
 *   An empty file with a rollback journal is an interrupted first start, which SQLite repairs.
 * - the error of `rejectLongPath`.
 */
export function rejectUnusablePath(file: string): void {
  const place = withoutLinks(file);
  rejectLongPath(place);
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
    return db;
  } catch (error: unknown) {
    db.close();
    throw error;
  }
}
