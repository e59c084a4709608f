import { existsSync, statSync } from 'node:fs';
import { withoutLinks } from './store-path.ts';

/** Knows the files of an open store, and notices if they are no longer at their paths. */
export interface FileIdentity {
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
