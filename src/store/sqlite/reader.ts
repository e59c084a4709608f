import { performance } from 'node:perf_hooks';
import type { StatementSync } from 'node:sqlite';
import { LRUCache } from 'lru-cache';
import { INT64_MAX, INT64_MIN } from '../../plant.ts';
import type { FoundToken } from '../../token.ts';
import { FIND_ANY_ROW, FOUND_TOKEN_COLUMNS, toFoundToken } from '../rows.ts';
import type { IdRange, PageLimit, PlantPage } from '../store.ts';
import { openForReading } from './connection.ts';
import { closeStore } from './files/close-store.ts';
import { watchFileIdentity } from './files/file-identity.ts';
import { preparePages } from './pages.ts';
import { rejectChangedSchema } from './schema-faults.ts';

/**
 * CACHE_CHARACTERS: max characters of all cached pages together. LONGEST_CACHED_CHARACTERS: max characters of
 * one cached page. ENTRY_CHARACTERS: memory of an entry without its texts, also of an empty page.
 */
const CACHE_CHARACTERS = 4 * 1024 * 1024;
const LONGEST_CACHED_CHARACTERS = 16 * 1024;
const ENTRY_CHARACTERS = 256;

/**
 * Opens a connection that is only for reads, and reads the store with it synchronously. Throws StoreNotOpened for a changed
 * schema; with `onlyTokens`, only if the table of tokens changed.
 */
export async function openReader(file: string, onlyTokens = false) {
  const db = openForReading(file);
  try {
    rejectChangedSchema(db, file, onlyTokens ? 'tokens' : undefined);
  } catch (error: unknown) {
    db.close();
    throw error;
  }
  const { listPlants, readLargePlant } = preparePages(db);
  const tokenByDigest = db.prepare(`SELECT ${FOUND_TOKEN_COLUMNS} FROM tokens WHERE digest = ?`);
  const tokenById = db.prepare(`SELECT ${FOUND_TOKEN_COLUMNS} FROM tokens WHERE id = ?`);
  const anyRow = db.prepare(FIND_ANY_ROW);
  const anyValidToken = db.prepare(
    'SELECT 1 FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) LIMIT 1',
  );
  const ping = db.prepare('SELECT count(*) FROM migrations');
  const dataVersion = db.prepare('PRAGMA data_version');
  // Rows as arrays: building an object would take a quarter of the time of these statements.
  for (const statement of [tokenByDigest, tokenById, dataVersion]) statement.setReturnArrays(true);
  const pages = new LRUCache<string, PlantPage>({
    maxSize: CACHE_CHARACTERS,
    maxEntrySize: LONGEST_CACHED_CHARACTERS,
    sizeCalculation: ({ json }, key) => json.length + key.length + ENTRY_CHARACTERS,
  });
  const files = watchFileIdentity(file, 0);
  let pagesVersion: unknown;
  /** Event-loop iterations and I/O events, as counted when `data_version` was last read. -1 requires a read. */
  let knownLoopCount = -1;
  let knownEvents = -1;

  // Clears the cached pages if another connection has committed, which changes `data_version`. Reads it once per poll,
  // since each read takes two file locks. An iteration polls again if over 1,024 sockets are ready: `events` shows it.
  function dropOutdatedPages(): void {
    const { loopCount, events } = performance.nodeTiming.uvMetricsInfo;
    if (loopCount === knownLoopCount && events === knownEvents) return;
    knownLoopCount = loopCount;
    knownEvents = events;
    // Reads of the check and timer phases have the same `loopCount` as those of the poll phase before them.
    setImmediate(requireCheck);
    const version = dataVersion.get()?.[0];
    if (version === pagesVersion) return;
    if (pages.size > 0) pages.clear();
    pagesVersion = version;
  }

  /** Makes the next read of a page check whether the cached pages are outdated. */
  function requireCheck(): void {
    knownEvents = -1;
  }

  return {
    files,
    /** Notes a commit of this process. Call this function after each commit, before the outcomes are reported. */
    noteCommit: requireCheck,
    listPlants(owner: string, range: IdRange, limit: PageLimit): PlantPage {
      dropOutdatedPages();
      const key = `${keyOf(range)} ${limit.plants} ${limit.bytes} ${owner}`;
      const known = pages.get(key);
      if (known !== undefined) return known;
      const read = listPlants(owner, range, limit);
      pages.set(key, read);
      return read;
    },
    readLargePlant,
    findToken: (digest: Uint8Array) => readToken(tokenByDigest, digest),
    findTokenById: (id: string) => readToken(tokenById, id),
    hasValidTokens: (now: number) => anyValidToken.get(now) !== undefined,
    isEmpty: () => anyRow.get() === undefined,
    ping: () => {
      ping.get();
    },
    close: () => closeStore(db, files),
  };
}

/** Returns a range as text. That of all ids has a name: to render two int64 values would take as long as the lookup. */
function keyOf({ from, to }: IdRange): string {
  return from === INT64_MIN && to === INT64_MAX ? 'all' : `${from} ${to}`;
}

function readToken(statement: StatementSync, key: string | Uint8Array): FoundToken | undefined {
  const row = statement.get(key);
  return row === undefined ? undefined : toFoundToken(Object.values(row));
}
