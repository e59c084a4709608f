import { existsSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { codeOf } from '../../../thrown-errors.ts';
import { syncFolder } from '../../folder-sync.ts';
import type { LogLeft } from '../../store.ts';
import { isLocked, reasonOf } from '../errors.ts';
import type { FileIdentity } from './file-identity.ts';
import { fileWithContent } from './store-path.ts';

/** Connections that must not be closed before the process ends. */
const leftOpen = new Set<DatabaseSync>();

/**
 * Copies what it can of the log into the database file that a connection has opened. Does nothing if that file was
 * replaced: another process may use the log for the new file, which would then never get its writes. Does nothing if the
 * index of the log was moved, removed or replaced: another process may have begun the log again since. Returns true if the
 * file holds all of the log.
 */
export function checkpoint(db: DatabaseSync, { lostDatabase, whyIndexMoved }: FileIdentity): boolean {
  if (lostDatabase() === 'replaced' || whyIndexMoved() !== undefined) return false;
  const done = db.prepare('PRAGMA wal_checkpoint(PASSIVE)').get();
  return done?.busy === 0 && done.checkpointed === done.log;
}

/**
 * Closes the last connection of this process to a store, and empties its log: SQLite does so too, but hides an error.
 * Returns a log that may hold writes which the database file lacks. If that file was replaced, the log is renamed, since
 * the next connection would apply it to the new file. If the index of the log was moved, removed or replaced, the connection
 * stays open until the process ends. Returns undefined if nothing is left, or if another process uses the store.
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
  const lostIndex = closeConnection(db, files);
  if (lost === 'replaced') return setLogAside(database, log);
  if (lost === 'missing') return logWithoutDatabase(database, log);
  const reason = lostIndex ?? (failure === undefined || isLocked(failure) ? undefined : reasonOf(failure));
  if (reason === undefined || fileWithContent(log) === undefined) return undefined;
  return { file: log, reason, isSeparated: false };
}

/**
 * Closes a connection, unless the index of its log is no longer at its path: then at the close, SQLite would copy the log by
 * this index into the file, and remove the log. Such a connection stays open until the process ends. Returns the reason.
 */
export function closeConnection(
  db: DatabaseSync,
  { whyIndexMoved }: Pick<FileIdentity, 'whyIndexMoved'>,
): string | undefined {
  const reason = whyIndexMoved();
  if (reason === undefined) {
    db.close();
    return undefined;
  }
  // Node closes open connections at its usual end, but not in `process.exit`.
  if (leftOpen.size === 0) process.once('exit', () => process.exit());
  leftOpen.add(db);
  return reason;
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
  if (fileWithContent(log) === undefined) return undefined;
  const reason = `${database} is missing; put that same file back, or move the log away before another file takes its place`;
  return { file: log, reason, isSeparated: true };
}
