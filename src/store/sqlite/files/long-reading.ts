import type { DatabaseSync } from 'node:sqlite';
import { openForReading } from '../connection.ts';
import { provesDamage, storeFailed } from '../errors.ts';
import { closeConnection } from './close-store.ts';
import { type FileIdentity, watchIndex } from './file-identity.ts';
import { withoutLinks } from './store-path.ts';

/** A connection for the reads of a command, which may take minutes. */
export interface LongReading {
  readonly db: DatabaseSync;
  /**
   * Runs `work`, which reads the store. Rejects with StoreUnavailable if the index of the log was moved, removed or replaced
   * meanwhile: other processes then do not know that the log is being read, and may have written over it.
   */
  read<T>(work: () => Promise<T>): Promise<T>;
  close(): void;
}

/** Opens a connection that is only for reads. Throws if the file cannot be opened. */
export function openLongReading(file: string): LongReading {
  const db = openForReading(file);
  let whyIndexMoved: FileIdentity['whyIndexMoved'] | undefined;

  function rejectMixedReads(): void {
    const reason = whyIndexMoved?.();
    if (reason !== undefined) throw storeFailed(file, reason);
  }

  return {
    db,
    read: async (work) => {
      openLog(db);
      whyIndexMoved ??= watchIndex(withoutLinks(file));
      return work().finally(rejectMixedReads);
    },
    close: () => {
      if (whyIndexMoved === undefined) db.close();
      else closeConnection(db, { whyIndexMoved });
    },
  };
}

/** Opens the log and its index, so that their identity is known. Throws the error of SQLite, but not for a damaged file. */
function openLog(db: DatabaseSync): void {
  try {
    db.prepare('PRAGMA schema_version').get();
  } catch (error: unknown) {
    // `work` reports what is damaged.
    if (!provesDamage(error)) throw error;
  }
}
