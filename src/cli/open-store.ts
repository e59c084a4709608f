import { connectionOptions, type Flags } from '../config.ts';
import { placeOf } from '../database-url.ts';
import type { Bulk } from '../store/bulk-store.ts';
import { migrateStore, openBulk, openStore, storeExists } from '../store/open-engine.ts';
import { type Store, StoreNotOpened } from '../store/store.ts';
import { configOf } from './flags.ts';
import { writeMessage } from './message.ts';

/** What to do when there is no store, for a command that takes its URL from the settings. */
export const DATABASE_URL_HINT = '--database-url (DATABASE_URL) names another';

/** The statements of a command that reads all there is may take longer than those that a request waits for. */
const BULK_STATEMENT_TIMEOUT_MS = 600_000;

/**
 * Runs some work on the store that the flags name, and closes it again. Works while the service runs on it too.
 * A store that does not exist is made, unless the work makes sense on an `existing` one alone.
 */
export async function withStore<T>(
  flags: Flags,
  work: (store: Store) => Promise<T>,
  which: 'existing' | 'any' = 'any',
): Promise<T> {
  const config = configOf(flags);
  if (which === 'existing') rejectUnlessExists(config.databaseUrl, DATABASE_URL_HINT);
  const fatal = Promise.withResolvers<never>();
  // It may break while it opens, when nobody waits for this yet; the work hears of it all the same.
  fatal.promise.catch(() => undefined);
  const store = await sayingWhenNew(config.databaseUrl, () =>
    openStore(config.databaseUrl, {
      now: Date.now,
      onFatal: fatal.reject,
      connections: connectionOptions(config),
    }),
  );
  try {
    return await Promise.race([work(store), fatal.promise]);
  } finally {
    await store.close();
  }
}

/** Which store: that of the flags, or one by its URL, with what to do when there is none. */
interface StoreAddress {
  readonly flags?: Flags;
  readonly url?: string;
  readonly hint?: string;
}

/** As `withStore`, for work that moves a store in bulk; with the schema brought up to date unless it is wanted as it is. */
export async function withBulk<T>(
  { flags = {}, url = configOf(flags).databaseUrl, hint = DATABASE_URL_HINT }: StoreAddress,
  work: (bulk: Bulk) => Promise<T>,
  { which = 'any', migrate = true }: { readonly which?: 'existing' | 'any'; readonly migrate?: boolean } = {},
): Promise<T> {
  if (which === 'existing') rejectUnlessExists(url, hint);
  if (migrate) await sayingWhenNew(url, () => migrateStore(url));
  const bulk = await openBulk(url, {
    ...connectionOptions(configOf(flags)),
    statementTimeoutMs: BULK_STATEMENT_TIMEOUT_MS,
  });
  try {
    return await work(bulk);
  } finally {
    await bulk.close();
  }
}

/** Throws StoreNotOpened when there is nothing to open; the hint says what to do. */
export function rejectUnlessExists(url: string, hint: string): void {
  if (storeExists(url)) return;
  throw new StoreNotOpened(`there is no store at ${placeOf(url)}; ${hint}`);
}

/** Makes or opens a store, and says on standard error when it was made: the one that was meant may be elsewhere. */
export async function sayingWhenNew<T>(url: string, open: () => Promise<T>): Promise<T> {
  const isNew = !storeExists(url);
  const opened = await open();
  if (isNew) writeMessage(`made a new store at ${placeOf(url)}`);
  return opened;
}
