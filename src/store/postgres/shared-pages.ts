import { setImmediate } from 'node:timers/promises';
import { pageKey } from '../rows.ts';
import type { PlantPage, Store } from '../store.ts';

/**
 * Reads a page once for all lists of one event-loop iteration that want the same page. The read is sent at the end of
 * the iteration. So each list sees every write that was acknowledged before the list began.
 */
export function sharePages(read: Store['listPlants']): Store['listPlants'] {
  const pages = new Map<string, Promise<PlantPage>>();
  let ended: Promise<void> | undefined;

  async function end(): Promise<void> {
    await setImmediate();
    ended = undefined;
    pages.clear();
  }

  return (owner, range, limit) => {
    const key = pageKey(owner, range, limit);
    const known = pages.get(key);
    if (known !== undefined) return known;
    ended ??= end();
    const page = ended.then(() => read(owner, range, limit));
    pages.set(key, page);
    return page;
  };
}
