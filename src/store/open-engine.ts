import { statSync } from 'node:fs';
import { sqliteFile } from '../database-url.ts';
import { codeOf } from '../thrown-errors.ts';
import { type Bulk, StoreNotEmpty } from './bulk-store.ts';
import { watchEventLoop } from './event-loop-load.ts';
import { createGroupCommit } from './group-commit.ts';
import type { RiskyMount } from './sqlite/files/mount.ts';
import type { ServiceLock } from './sqlite/files/service-lock.ts';
import {
  type CommitResult,
  type ConnectionOptions,
  type Engine,
  type LogLeft,
  type MigrationOptions,
  resultOf,
  StatementRejected,
  type Store,
  StoreNotOpened,
  type StoreOptions,
} from './store.ts';

/** Max batches in flight on PostgreSQL. The second batch is sent while the server commits the first. */
export const POSTGRES_BATCHES_IN_FLIGHT = 2;

/**
 * Migrates and opens the store at a URL, `sqlite:data/plants.db` or `postgres://…`. If that fails, rejects
 * with StoreNotOpened, whose message is for the operator.
 */
export async function openStore(url: string, options: StoreOptions): Promise<Store> {
  const { engine, batching } = await openEngine(url, options);
  const writes = createGroupCommit({
    commit: reported((batch) => engine.commit(batch), options),
    // Faster only while this thread is busy at least half of the time (docs/decisions/0002-sqlite.md).
    inHalves: watchEventLoop(),
    ...batching,
  });
  return {
    ...engine,
    write: (write) => writes.write(write),
    load: () => ({ ...writes.load(), ...engine.load() }),
    close: async () => {
      await writes.close();
      await engine.close();
    },
  };
}

/**
 * Reports the end of each batch of writes. A rejected batch does not count as a failure of the store, since
 * its writes are retried in smaller batches. A batch that changed nothing does not show that writes succeed.
 */
function reported(commit: Engine['commit'], { onCommit, onTaskEnd }: StoreOptions): Engine['commit'] {
  return async (batch) => {
    const begun = performance.now();
    const end = (result: CommitResult): void =>
      onCommit?.(batch.length, (performance.now() - begun) / 1_000, result);
    const outcomes = await commit(batch).catch((error: unknown) => {
      end('failed');
      if (!(error instanceof StatementRejected)) onTaskEnd?.('writes', error);
      throw error;
    });
    const result = resultOf(outcomes);
    end(result);
    if (result === 'committed') onTaskEnd?.('writes', undefined);
    return outcomes;
  };
}

// Imports an engine only when it is needed, since each engine is large. The functions below do so too.
async function openEngine(url: string, options: StoreOptions) {
  const file = sqliteFile(url);
  if (file !== undefined) {
    const { openSqlite } = await import('./sqlite/engine.ts');
    const engine = await openSqlite(file, options);
    return { engine, batching: { maxInFlight: 1 } };
  }
  const { openPostgres } = await import('./postgres/engine.ts');
  const { lockKeys } = await import('./postgres/batch.ts');
  const batching = {
    maxInFlight: POSTGRES_BATCHES_IN_FLIGHT,
    keysOf: lockKeys,
    maxWaitMs: options.connections.acquireTimeoutMs,
  };
  return { engine: await openPostgres(url, options), batching };
}

/**
 * Opens a store for bulk commands, such as import, without migrating it. Rejects with StoreNotOpened if the
 * URL or the file is unusable. Calls `onLogLeft` at the close if the write-ahead log still holds writes that the
 * database file lacks.
 */
export async function openBulk(
  url: string,
  connections: ConnectionOptions,
  onLogLeft?: (left: LogLeft) => void,
): Promise<Bulk> {
  const file = sqliteFile(url);
  if (file === undefined) {
    const { openPostgresBulk } = await import('./postgres/bulk.ts');
    return openPostgresBulk(url, connections);
  }
  const { openSqliteBulk } = await import('./sqlite/bulk.ts');
  return openSqliteBulk(file, onLogLeft);
}

/**
 * Rejects if a store cannot be created, migrated and filled: with StoreNotEmpty if it has rows, otherwise with
 * StoreNotOpened. Changes nothing.
 */
export async function rejectUnlessFillable(url: string): Promise<void> {
  const file = sqliteFile(url);
  const isFillable =
    file === undefined
      ? (await import('./postgres/bulk.ts')).isFillable(url)
      : (await import('./sqlite/migrate.ts')).isFillable(file);
  if (!(await isFillable)) throw new StoreNotEmpty('the store is not empty');
}

/**
 * Backs up an embedded store to an empty file, while clients may write to the store. Reports the progress in
 * database pages. Rejects if the copy is damaged, and with the error of `checkTarget`, which is called before
 * the copy and before its check.
 */
export async function backUpStore(
  url: string,
  to: string,
  onProgress: (done: number, total: number) => void,
  checkTarget: () => void = () => undefined,
): Promise<void> {
  const file = sqliteFile(url);
  if (file === undefined) throw new StoreNotOpened('only an embedded store can be backed up');
  const { backUpSqlite } = await import('./sqlite/backup.ts');
  await backUpSqlite({ file, to, onProgress, checkTarget });
}

/** Migrates a store. Resolves to the names of the applied migrations. */
export async function migrateStore(url: string, options?: MigrationOptions): Promise<readonly string[]> {
  const file = sqliteFile(url);
  if (file === undefined) {
    const { migratePostgres } = await import('./postgres/migrate.ts');
    return migratePostgres(url, options);
  }
  const { migrateSqlite } = await import('./sqlite/migrate.ts');
  return migrateSqlite(file, options);
}

/**
 * Marks an embedded store as used by a service, so that a second service can detect the first one. Resolves
 * to undefined for PostgreSQL, since any number of services may share a database.
 */
export async function markAsServed(url: string): Promise<ServiceLock | undefined> {
  const file = sqliteFile(url);
  if (file === undefined) return undefined;
  const { lockForService } = await import('./sqlite/files/service-lock.ts');
  return lockForService(file);
}

/** Risks of the place of an embedded store; undefined if there is none, or it is not known. */
export interface PlaceRisks {
  /** The risk of its file system. */
  readonly mount: RiskyMount | undefined;
  /** The mode of its file, in octal, if every user can read or change it. */
  readonly mode: string | undefined;
}

export async function placeRisksOf(url: string): Promise<PlaceRisks> {
  const file = sqliteFile(url);
  if (file === undefined) return { mount: undefined, mode: undefined };
  const [{ riskyMountOf }, { exposedModeOf }] = await Promise.all([
    import('./sqlite/files/mount.ts'),
    import('./sqlite/files/exposed-mode.ts'),
  ]);
  return { mount: riskyMountOf(file), mode: exposedModeOf(file) };
}

export function isEmbedded(url: string): boolean {
  return sqliteFile(url) !== undefined;
}

/**
 * Resolves to whether a URL has a store: a file, even one whose folder cannot be read, or tables in a
 * PostgreSQL database. Rejects with StoreNotOpened if the database cannot be reached.
 */
export async function storeExists(url: string): Promise<boolean> {
  const file = sqliteFile(url);
  if (file === undefined) {
    const { postgresStoreExists } = await import('./postgres/migrate.ts');
    return postgresStoreExists(url);
  }
  try {
    statSync(file);
    return true;
  } catch (error: unknown) {
    return codeOf(error) === 'EACCES';
  }
}
