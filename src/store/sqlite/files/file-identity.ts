import { existsSync, statSync } from 'node:fs';
import { withoutLinks } from './store-path.ts';

const MOVED = 'was moved, replaced or removed while it was open';

/** Knows the files of an open store, and notices if they are no longer at their paths. */
export interface FileIdentity {
  readonly database: string;
  readonly log: string;
  /**
   * Returns the reason for a fatal error if a file of the store was moved, removed or replaced: SQLite keeps using it
   * (https://sqlite.org/howtocorrupt.html, §2.4 and §1.4). Otherwise, and if a path cannot be read, returns undefined.
   */
  whyMoved(): string | undefined;
  /**
   * Returns the reason for a fatal error if the log is still at its path, but its index (`-shm`) was moved, removed or replaced.
   * Another process then makes a new index, and neither sees what the other adds to the log: a write or a checkpoint overwrites
   * acknowledged writes, and a read mixes two states. Otherwise, and if a path cannot be read, returns undefined.
   */
  whyIndexMoved(): string | undefined;
  /**
   * Returns what became of the database file if the log is still at its path, but that file is not: it is `missing`, or
   * another one was put there (`replaced`). Otherwise, and if a path cannot be read, returns undefined.
   */
  lostDatabase(): 'missing' | 'replaced' | undefined;
}

/**
 * Returns the identity of the files at a path, which must be those of an open connection that has read: its log and the
 * index of the log exist from its first read on, and until the last connection is closed. `whyMoved` notices a log that
 * another process has made again only `logCheckMs` milliseconds after the last look.
 */
export function watchFileIdentity(file: string, logCheckMs: number): FileIdentity {
  const database = withoutLinks(file);
  const log = logOf(database);
  const whyIndexMoved = watchIndex(database);
  const isAt = rememberFile(file);
  let logIno = inodeOf(log);
  let lookedAt = performance.now();

  return {
    database,
    log,
    whyIndexMoved,
    whyMoved: () => {
      try {
        if (!isAt(file)) return describeMoved(file);
        if (!existsSync(log)) return describeMoved(log);
        const moved = whyIndexMoved();
        // A file whose times were read must write them at the next fsync, which then takes 50 µs longer.
        if (moved !== undefined || performance.now() - lookedAt < logCheckMs) return moved;
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

/**
 * Returns `whyIndexMoved` for the files at a path without links. They must be those of an open connection that has read.
 */
export function watchIndex(database: string): FileIdentity['whyIndexMoved'] {
  const log = logOf(database);
  const index = `${database}-shm`;
  const logIno = inodeOf(log);
  let indexIno = inodeOf(index);
  return () => {
    try {
      const found = inodeOf(index);
      indexIno ??= found;
      // If the log was moved too, another process makes a new one. The two then share no log.
      return indexIno === found || inodeOf(log) !== logIno
        ? undefined
        : `${index} ${MOVED}; nothing is lost, but a write could now overwrite those of other processes, and a read could mix two states: start again`;
    } catch {
      return undefined;
    }
  };
}

function logOf(database: string): string {
  return `${database}-wal`;
}

export function inodeOf(file: string): number | undefined {
  return statSync(file, { throwIfNoEntry: false })?.ino;
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
  return `${file} ${MOVED}, so writes no longer reach that path, and earlier ones may be gone from it`;
}
