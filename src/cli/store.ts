import { connectionOptions, type Setting, withoutPassword } from '../config.ts';
import { openStore, storeExists } from '../store/open.ts';
import { type Store, StoreNotOpened } from '../store.ts';
import { configOf } from './settings.ts';

/**
 * Runs some work on the store that the flags name, and closes it again. Works while the service runs on it too.
 * A store that does not exist is made, unless the work makes sense on an `existing` one alone.
 */
export async function withStore<T>(
  flags: Readonly<Partial<Record<Setting, string>>>,
  work: (store: Store) => Promise<T>,
  which: 'existing' | 'any' = 'any',
): Promise<T> {
  const config = configOf(flags);
  if (which === 'existing' && !storeExists(config.databaseUrl)) {
    const name = withoutPassword(config.databaseUrl);
    throw new StoreNotOpened(`there is no store at ${name}; --database-url names another`);
  }
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
