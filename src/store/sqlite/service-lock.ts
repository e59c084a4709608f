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
    db.exec('BEGIN EXCLUSIVE');
  } catch (error: unknown) {
    db?.close();
    return { isShared: isLocked(error), release: () => undefined };
  }
  return {
    isShared: false,
    release: () => {
      rmSync(file, { force: true });
      db.close();
    },
  };
}
