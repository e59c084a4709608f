import { resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** How long a write waits for another process that writes to the same file. */
const WRITE_LOCK_TIMEOUT_MS = 5_000;

/** How long a read may wait; only recovery after a crash makes it wait at all. */
const READ_LOCK_TIMEOUT_MS = 1_000;

/** Opens the one connection that writes. Its checkpoints are the caller's to run: an automatic one hides its errors. */
export function openForWriting(file: string, timeout = WRITE_LOCK_TIMEOUT_MS): DatabaseSync {
  const db = open(file, timeout);
  try {
    db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0');
    return db;
  } catch (error: unknown) {
    db.close();
    throw error;
  }
}

/** Opens a connection that only reads, next to the one that writes. */
export function openForReading(file: string, timeout = READ_LOCK_TIMEOUT_MS): DatabaseSync {
  const db = open(file, timeout);
  db.exec('PRAGMA query_only = ON');
  return db;
}

// SQLite gives names such as `:memory:` and `file:…` a meaning; a path has none.
function open(file: string, timeout: number): DatabaseSync {
  return new DatabaseSync(resolve(file), { timeout });
}
