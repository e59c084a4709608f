import { accessSync, constants, rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { isLocked } from '../errors.ts';
import { inodeOf } from './file-identity.ts';
import { withoutLinks } from './store-path.ts';

/** Max milliseconds that a start waits while other services start or stop. */
const SHARED_LOCK_TIMEOUT_MS = 1_000;

/** A lock that shows that a service uses a store. It does not prevent other services from using the store. */
export interface ServiceLock {
  /** True if another service already used the store. */
  readonly isShared: boolean;
  /** Releases the lock. Never throws: the file may stay, since it has no data. */
  release(): void;
}

/**
 * Locks the file `STORE-service`. SQLite takes the lock, since Node has no function for file locks. The
 * operating system releases the lock when the process ends. `isShared` is false if the file cannot be
 * created, for example on a full disk.
 */
export function lockForService(store: string): ServiceLock {
  const file = fileOf(store);
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(file, { timeout: 0 });
    const opened = inodeOf(file);
    const isShared = !whileAlone(db, () => undefined);
    // A read in an open transaction keeps a shared lock, so that every service holds one. It waits for the
    // short exclusive locks of services that start or stop.
    db.exec(`PRAGMA busy_timeout = ${SHARED_LOCK_TIMEOUT_MS}; BEGIN; SELECT count(*) FROM sqlite_schema`);
    if (opened !== undefined && opened === inodeOf(file)) return { isShared, release: releaseOf(file, db) };
    // A service that stopped has removed the file meanwhile.
    db.close();
    return lockForService(store);
  } catch (error: unknown) {
    db?.close();
    return { isShared: isLocked(error), release: () => undefined };
  }
}

/** Returns true if a service uses a store, and false if that is unknown. */
export function isServed(store: string): boolean {
  try {
    // Without write access, SQLite would give a lock that excludes no other, and the release would remove the file.
    accessSync(fileOf(store), constants.R_OK | constants.W_OK);
  } catch {
    return false;
  }
  const { isShared, release } = lockForService(store);
  release();
  return isShared;
}

function fileOf(store: string): string {
  return `${withoutLinks(store)}-service`;
}

/** Returns a function that releases a lock. The last one removes the file. */
function releaseOf(file: string, db: DatabaseSync): () => void {
  return () => {
    try {
      db.exec('COMMIT; PRAGMA busy_timeout = 0');
      whileAlone(db, () => rmSync(file, { force: true }));
    } catch {
      // The next service locks the file that is left. An error would hide what else a stop must report.
    }
    db.close();
  };
}

/** Runs `work` under an exclusive lock. Returns false, without `work`, if another service has a lock. */
function whileAlone(db: DatabaseSync, work: () => void): boolean {
  try {
    db.exec('BEGIN EXCLUSIVE');
  } catch (error: unknown) {
    if (isLocked(error)) return false;
    throw error;
  }
  work();
  db.exec('COMMIT');
  return true;
}
