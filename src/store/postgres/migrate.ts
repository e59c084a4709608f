import { setTimeout as pause } from 'node:timers/promises';
import { messageOf } from '../../thrown-errors.ts';
import { applyMigrations } from '../migrations.ts';
import { type MigrationOptions, StoreNotOpened } from '../store.ts';
import { Connections } from './connections.ts';
import { isDuplicateTable, isLockTimeout, isPrivilegeMissing } from './errors.ts';
import { setTimeouts } from './host/sessions.ts';
import type { Connection } from './statements.ts';
import { inTransaction } from './transaction.ts';

export const POSTGRES_MIGRATIONS = 'store/postgres/migrations/';

/**
 * Key of the advisory lock for migrations: "plants" in ASCII, a number that no other program is likely to
 * use.
 */
const MIGRATION_LOCK = 0x706c616e7473;

/**
 * Statement timeout in milliseconds. It must exceed the duration of a migration, since instances wait for
 * each other's migrations.
 */
export const TIMEOUT_MS = 60_000;

/**
 * Max wait for the lock of a table, and pause after it, in milliseconds. Statements of running instances queue behind the
 * waiting migration, and would fail after their timeouts. In the pause they run.
 */
export const LOCK_TIMEOUT_MS = 1_000;
const LOCK_PAUSE_MS = 2_000;

/**
 * Applies the missing migrations of a database in one transaction. Instances that start together migrate one
 * at a time. Resolves to the names of the applied migrations. Rejects with StoreNotOpened on any failure.
 */
export function migratePostgres(url: string, options?: MigrationOptions): Promise<readonly string[]> {
  return withTransaction(url, (connection) => migrate(connection, options));
}

/** Resolves to whether a database has a store. Rejects with StoreNotOpened on any failure, also if the store lacks a table. */
export function postgresStoreExists(url: string): Promise<boolean> {
  return withTransaction(url, findStore);
}

/**
 * Calls `work` in a transaction on a database, and ends it as `endFor` decides. Rejects with StoreNotOpened on any failure.
 * READ COMMITTED, so that a statement after the lock for migrations sees the migration that held it before.
 */
export async function withTransaction<T>(
  url: string,
  work: (connection: Connection) => Promise<T>,
  endFor?: (result: T) => 'COMMIT' | 'ROLLBACK',
): Promise<T> {
  const connections = new Connections(url, {
    poolSize: 1,
    acquireTimeoutMs: 10_000,
    statementTimeoutMs: TIMEOUT_MS,
    prepare: false,
    ofCommand: true,
  });
  const begin = `BEGIN ISOLATION LEVEL READ COMMITTED; ${setTimeouts('LOCAL', TIMEOUT_MS)}` as const;
  try {
    return await connections.use((connection) =>
      inTransaction(connection, begin, () => work(connection), endFor),
    );
  } catch (error: unknown) {
    if (error instanceof StoreNotOpened) throw error;
    throw new StoreNotOpened(`cannot open the PostgreSQL store: ${messageOf(error)}`, { cause: error });
  } finally {
    await connections.close();
  }
}

/**
 * Applies the missing migrations in a transaction of `withTransaction`. Retries if another session locks a table. Later
 * statements have the timeouts of `withTransaction` again.
 */
export async function migrate(
  connection: Connection,
  { onMigrate, onBlocked }: MigrationOptions = {},
): Promise<readonly string[]> {
  await rejectOtherEncodings(connection);
  // Waits for other migrations up to TIMEOUT_MS, whatever the account or the database sets.
  await connection.query({ text: 'SET LOCAL lock_timeout = 0' });
  const onBlockedOnce = once(onBlocked);
  const blocked = setTimeout(onBlockedOnce, LOCK_TIMEOUT_MS);
  try {
    await connection.query({ text: `SELECT pg_advisory_xact_lock(${MIGRATION_LOCK})` });
  } finally {
    clearTimeout(blocked);
  }
  await connection.query({ text: `SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}` });
  await connection.query({ text: 'SAVEPOINT unlocked' });
  const onMigrateOnce = once(onMigrate);
  for (const deadline = performance.now() + TIMEOUT_MS; ; ) {
    try {
      const applied = await applyMissing(connection, onMigrateOnce);
      await connection.query({ text: setTimeouts('LOCAL', TIMEOUT_MS) });
      return applied;
    } catch (error: unknown) {
      const remedy = remedyFor(error);
      if (remedy !== undefined)
        throw new StoreNotOpened(`cannot open the PostgreSQL store: ${messageOf(error)}; ${remedy}`, {
          cause: error,
        });
      if (!isLockTimeout(error)) throw error;
      if (performance.now() > deadline)
        throw new StoreNotOpened(
          `another session keeps a lock: ${messageOf(error)}; wait until it ends, as a pg_dump does, and try again`,
          { cause: error },
        );
    }
    onBlockedOnce();
    await connection.query({ text: 'ROLLBACK TO SAVEPOINT unlocked' });
    await pause(LOCK_PAUSE_MS);
  }
}

function remedyFor(error: unknown): string | undefined {
  if (isDuplicateTable(error))
    return 'it is that of another program, or of a restore without the rows of `migrations`: name another database, or restore these rows too';
  return isPrivilegeMissing(error)
    ? 'run `plant-store migrate` as the owner of the tables; if it has run, grant this account its rights'
    : undefined;
}

/** Returns a function that calls `report` at its first call only. */
function once<T extends readonly unknown[]>(report?: (...args: T) => void): (...args: T) => void {
  let isReported = false;
  return (...args) => {
    if (!isReported) report?.(...args);
    isReported = true;
  };
}

async function applyMissing(
  connection: Connection,
  onMigrate: MigrationOptions['onMigrate'],
): Promise<readonly string[]> {
  await ensureMigrationsTable(connection);
  return applyMigrations(POSTGRES_MIGRATIONS, {
    run: async (sql) => {
      for (const text of statementsIn(sql)) await connection.query({ text });
    },
    applied: () => appliedMigrations(connection),
    record: async (name) => {
      await connection.query({ text: 'INSERT INTO migrations (name) VALUES ($1)', values: [name] });
    },
    onMigrate,
  });
}

/**
 * Splits the SQL of a migration into statements. Each statement ends with a semicolon at the end of a line.
 * Citus forwards the text of a query to its workers, and rejects a text with several statements.
 */
function statementsIn(sql: string): readonly string[] {
  return sql.split(/(?<=;)\n/).filter((text) => text.trim() !== '');
}

async function rejectOtherEncodings(connection: Connection): Promise<void> {
  const [row] = await connection.query({ text: 'SHOW server_encoding' });
  const encoding = String(row?.server_encoding);
  if (encoding !== 'UTF8')
    throw new StoreNotOpened(
      `the encoding of the database must be UTF8, not ${encoding}; create one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`,
    );
}

// Creates the table `migrations` if it does not exist. Does not use CREATE TABLE IF NOT EXISTS, which needs
// the CREATE privilege even for an existing table.
async function ensureMigrationsTable(connection: Connection): Promise<void> {
  if (await findStore(connection)) return;
  await connection.query({ text: 'CREATE TABLE migrations (name text PRIMARY KEY)' });
}

/** Resolves to whether a database has a store. Throws StoreNotOpened if it has a table `migrations`, but not all others. */
async function findStore(connection: Connection): Promise<boolean> {
  if (await hasStore(connection)) return true;
  if (await hasMigrationsTable(connection))
    throw new StoreNotOpened(
      'the database is that of another program, or lacks a table of a store (migrations, plants, tokens, idempotency_keys); name another database, or restore a backup',
    );
  return false;
}

/** Resolves to true if a database has all tables of a store. A table `migrations` alone may be of another program. */
export async function hasStore(connection: Connection): Promise<boolean> {
  const [row] = await connection.query({
    text: `SELECT pg_catalog.num_nulls(to_regclass('migrations'), to_regclass('plants'), to_regclass('tokens'),
                                       to_regclass('idempotency_keys')) = 0 AS found`,
  });
  return row?.found === true;
}

/** Resolves to the names of the migrations in the table `migrations`, which must exist. */
export async function appliedMigrations(connection: Connection): Promise<readonly string[]> {
  const rows = await connection.query({ text: 'SELECT name FROM migrations' });
  return rows.map(({ name }) => String(name));
}

/** Resolves to true if a database has a table `migrations`, of any program. */
export async function hasMigrationsTable(connection: Connection): Promise<boolean> {
  const [row] = await connection.query({ text: "SELECT to_regclass('migrations') IS NOT NULL AS found" });
  return row?.found === true;
}
