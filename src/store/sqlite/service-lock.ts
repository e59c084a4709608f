import { rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { withoutLinks } from './connection.ts';
import { isLocked } from './errors.ts';

/** A lock that shows that a service uses a store. It does not prevent other services from using the store. */
export interface ServiceLock {
  /** True if another service already used the store. */
  readonly isShared: boolean;
  release(): void;
}

/**
 * Locks the file `STORE-service`. SQLite takes the lock, since Node has no function for file locks. The
 * operating system releases the lock when the process ends. `isShared` is false if the file cannot be
 * created, for example on a full disk.
 */
export function lockForService(store: string): ServiceLock {
  const file = `${withoutLinks(store)}-service`;
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(file, { timeout: 0 });
    const isShared = isInUse(db);
    // A read in an open transaction keeps a shared lock, so that every service holds one.
    db.exec('BEGIN; SELECT count(*) FROM sqlite_schema');
    return { isShared, release: () => release(file, db) };
  } catch (error: unknown) {
    db?.close();
    return { isShared: isLocked(error), release: () => undefined };
  }
}

/** Removes the file with the last lock. */
function release(file: string, db: DatabaseSync | undefined): void {
  try {
    db?.exec('COMMIT');
    if (db !== undefined && !isInUse(db)) rmSync(file, { force: true });
  } finally {
    db?.close();
  }
}

/** Tries an exclusive lock: it fails while any other service has a lock. */
function isInUse(db: DatabaseSync): boolean {
  try {
    db.exec('BEGIN EXCLUSIVE; COMMIT');
    return false;
  } catch (error: unknown) {
    if (isLocked(error)) return true;
    throw error;
  }
}
