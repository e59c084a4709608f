import type { Bulk } from '../bulk.ts';
import { connectionOptions, withoutPassword } from '../config.ts';
import { migrateStore, openBulk, openStore, storeExists } from '../store/open.ts';
import { type Store, StoreNotOpened } from '../store.ts';
import { configOf, type Flags } from './settings.ts';

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
  if (which === 'existing') refuseUnlessExists(config.databaseUrl);
  const fatal = Promise.withResolvers<never>();
  const store = await openStore(config.databaseUrl, {
    now: Date.now,
    onFatal: fatal.reject,
    connections: connectionOptions(config),
  });
  try {
    return await Promise.race([work(store), fatal.promise]);
  } finally {
    await store.close();
  }
}

/** As `withStore`, for work that moves a store in bulk; with the schema brought up to date unless it is wanted as it is. */
export async function withBulk<T>(
  { flags = {}, url = configOf(flags).databaseUrl }: { readonly flags?: Flags; readonly url?: string },
  work: (bulk: Bulk) => Promise<T>,
  { which = 'any', migrate = true }: { readonly which?: 'existing' | 'any'; readonly migrate?: boolean } = {},
): Promise<T> {
  if (which === 'existing') refuseUnlessExists(url);
  if (migrate) await migrateStore(url);
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

/** Throws StoreNotOpened when there is nothing to open. */
export function refuseUnlessExists(url: string): void {
  if (storeExists(url)) return;
  throw new StoreNotOpened(`there is no store at ${withoutPassword(url)}; --database-url names another`);
}
