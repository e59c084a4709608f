import { type Config, connectionOptions } from '../config.ts';
import { displayUrl } from '../database-url.ts';
import type { Bulk } from '../store/bulk-store.ts';
import { isNewStore } from '../store/migrations.ts';
import { migrateStore, openBulk, openStore, storeExists } from '../store/open-engine.ts';
import { type LogLeft, type MigrationOptions, type Store, StoreNotOpened } from '../store/store.ts';
import type { CommandContext } from './context.ts';
import { writeMessage } from './message.ts';

/**
 * Advice in the error "there is no store", for commands that get the database URL from a flag or variable.
 */
export const DATABASE_URL_HINT = 'set --database-url (DATABASE_URL) to an existing one';

/**
 * Statement timeout in milliseconds for commands that read the whole store. Requests have a shorter timeout.
 */
const BULK_STATEMENT_TIMEOUT_MS = 600_000;

/**
 * Opens the store of a configuration to read and write tokens, calls `work` with it and closes it. The service may use the
 * same store at the same time. Creates a missing store, unless `mustExist` is true.
 */
export async function withStore<T>(
  context: CommandContext,
  config: Config,
  work: (store: Store) => Promise<T>,
  { mustExist = false }: { readonly mustExist?: boolean } = {},
): Promise<T> {
  if (mustExist) await rejectUnlessExists(config.databaseUrl, DATABASE_URL_HINT);
  const store = await openStore(config.databaseUrl, {
    now: Date.now,
    mustExist,
    onlyTokens: true,
    // After a fatal error, each call of the store rejects with it.
    onFatal: () => undefined,
    onCreated: () => announceCreated(context, config.databaseUrl),
    onLogLeft: (left) => reportLogLeft(context, left),
    ...migrationReports(context, config.databaseUrl),
    connections: connectionOptions(config),
  });
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

interface BulkOptions {
  readonly mustExist?: boolean;
  /** Advice in the error if the store must exist and does not. */
  readonly hint?: string;
  readonly migrate?: boolean;
}

/**
 * Opens a store for work on all its rows, calls `work` with it and closes it. Migrates the store first
 * and reports it, unless `migrate` is false.
 */
export async function withBulk<T>(
  context: CommandContext,
  config: Config,
  work: (bulk: Bulk) => Promise<T>,
  { mustExist = false, hint = DATABASE_URL_HINT, migrate = true }: BulkOptions = {},
): Promise<T> {
  const url = config.databaseUrl;
  if (mustExist) await rejectUnlessExists(url, hint);
  if (migrate) await migrateAndAnnounce(context, url, { mustExist });
  const bulk = await openBulk(
    url,
    { ...connectionOptions(config), statementTimeoutMs: BULK_STATEMENT_TIMEOUT_MS },
    (left) => reportLogLeft(context, left),
  );
  try {
    return await work(bulk);
  } finally {
    await bulk.close();
  }
}

/** Reports on standard error that a closed store has left a write-ahead log with writes. */
export function reportLogLeft({ stderr }: CommandContext, { file, reason, isSeparated }: LogLeft): void {
  writeMessage(
    stderr,
    isSeparated
      ? `plant-store: ${file} may hold acknowledged writes of a store file that is no longer next to it; never open another file with it: ${reason}`
      : `plant-store: ${file} could not be emptied (${reason}) and holds acknowledged writes; move and copy it with the store`,
  );
}

/** Rejects with StoreNotOpened, with the advice `hint`, if the store does not exist. */
export async function rejectUnlessExists(url: string, hint: string): Promise<void> {
  if (await storeExists(url)) return;
  throw new StoreNotOpened(`there is no store at ${displayUrl(url)}; ${hint}`);
}

/** Migrates a store, and reports that, or that it is new. Resolves to the names of the applied migrations. */
export async function migrateAndAnnounce(
  context: CommandContext,
  url: string,
  options?: MigrationOptions,
): Promise<readonly string[]> {
  const applied = await migrateStore(url, { ...options, ...migrationReports(context, url) });
  if (isNewStore(applied)) announceCreated(context, url);
  return applied;
}

/** Returns functions that report a migration on standard error. After it, a version before the last may not read the store. */
function migrationReports({ stderr }: CommandContext, url: string) {
  return {
    onMigrate: (names) =>
      writeMessage(stderr, `applying ${names.join(', ')} to the store at ${displayUrl(url)}`),
    onBlocked: () =>
      writeMessage(stderr, `waiting up to a minute for a lock of another session on ${displayUrl(url)}`),
  } satisfies MigrationOptions;
}

/** Reports a new store on standard error, since the user may have meant another path or database. */
function announceCreated({ stderr }: CommandContext, url: string): void {
  writeMessage(stderr, `created a new store at ${displayUrl(url)}`);
}
