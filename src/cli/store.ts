import { connectionOptions, type Setting } from '../config.ts';
import { openStore } from '../store/open.ts';
import type { Store } from '../store.ts';
import { configOf } from './settings.ts';

/** Runs some work on the store that the flags name, and closes it again. Works while the service runs on it too. */
export async function withStore<T>(
  flags: Readonly<Partial<Record<Setting, string>>>,
  work: (store: Store) => Promise<T>,
): Promise<T> {
  const fatal = Promise.withResolvers<never>();
  const config = configOf(flags);
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
