import { performance } from 'node:perf_hooks';
import { LRUCache } from 'lru-cache';
import type { IdRange, PlantPage } from '../store.ts';
import type { Token } from '../token.ts';
import { toToken } from './rows.ts';
import { openForReading } from './sqlite-file.ts';

/** Characters of the pages that are kept in memory: of all together, and of the longest. */
const CACHE_CHARACTERS = 4 * 1024 * 1024;
const LONGEST_CACHED_CHARACTERS = 16 * 1024;

/** What is read from the store, synchronously, on a connection of its own. */
interface Reader {
  /** Must be called after a commit of this process, before anybody learns of it. */
  noteCommit(): void;
  listPlants(owner: string, range: IdRange, atMost: number): PlantPage;
  findNthId(owner: string, range: IdRange, n: number): bigint | undefined;
  findToken(digest: Uint8Array): Token | undefined;
  listTokens(): Token[];
  ping(): void;
  close(): void;
}

/** Opens the connection for reads. Rejects with the error of SQLite. */
export async function openReader(file: string): Promise<Reader> {
  const db = openForReading(file);
  // `+`, since SQLite compiles a statement anew whenever a bare parameter of LIMIT is bound, to plan for its value.
  const page = db.prepare(
    `SELECT json, count, last,
            EXISTS (SELECT 1 FROM plants WHERE owner = ?1 AND id > last AND id <= ?3) AS more
       FROM (SELECT json_group_array(
                      CASE WHEN tag IS NULL THEN json_object('name', name)
                           ELSE json_object('name', name, 'tag', tag) END) AS json,
                    count(*) AS count, max(id) AS last
               FROM (SELECT id, name, tag FROM plants
                      WHERE owner = ?1 AND id BETWEEN ?2 AND ?3 ORDER BY id LIMIT +?4))`,
  );
  page.setReadBigInts(true);
  const nth = db.prepare(
    'SELECT id FROM plants WHERE owner = ? AND id BETWEEN ? AND ? ORDER BY id LIMIT 1 OFFSET ?',
  );
  nth.setReadBigInts(true);
  const tokenByDigest = db.prepare('SELECT * FROM tokens WHERE digest = ?');
  const tokens = db.prepare('SELECT * FROM tokens ORDER BY created_at, id');
  const ping = db.prepare('SELECT count(*) FROM migrations');
  const dataVersion = db.prepare('PRAGMA data_version');
  const pages = new LRUCache<string, PlantPage>({
    maxSize: CACHE_CHARACTERS,
    maxEntrySize: LONGEST_CACHED_CHARACTERS,
    sizeCalculation: ({ json }) => json.length,
  });
  let pagesVersion: unknown;
  let versionKnownIn: number | undefined;

  // The version changes with each commit of any other connection, and this one never writes: what was read is true until
  // then. Once a turn of the event loop is enough, since the requests of a turn had arrived when it began, and it costs
  // two locks on the file. Commits of this process are told of by themselves. The count of turns goes up before
  // requests arrive; setImmediate alone, when called in its own phase, would come behind those of the next turn.
  function forgetOutdatedPages(): void {
    const turn = performance.nodeTiming.uvMetricsInfo.loopCount;
    if (turn === versionKnownIn) return;
    versionKnownIn = turn;
    setImmediate(noteCommit);
    const version = dataVersion.get()?.data_version;
    if (version === pagesVersion) return;
    pages.clear();
    pagesVersion = version;
  }

  function noteCommit(): void {
    versionKnownIn = undefined;
  }

  function readPage(owner: string, { from, to }: IdRange, atMost: number): PlantPage {
    const row = page.get(owner, from, to, atMost) ?? {};
    return {
      json: String(row.json),
      count: Number(row.count),
      last: typeof row.last === 'bigint' ? row.last : undefined,
      more: row.more === 1n,
    };
  }

  return {
    noteCommit,
    listPlants(owner, range, atMost) {
      forgetOutdatedPages();
      const key = `${range.from} ${range.to} ${atMost} ${owner}`;
      const known = pages.get(key);
      if (known !== undefined) return known;
      const read = readPage(owner, range, atMost);
      pages.set(key, read);
      return read;
    },
    findNthId(owner, { from, to }, n) {
      const id = nth.get(owner, from, to, n - 1)?.id;
      return typeof id === 'bigint' ? id : undefined;
    },
    findToken(digest) {
      const row = tokenByDigest.get(digest);
      return row === undefined ? undefined : toToken(row);
    },
    listTokens: () => tokens.all().map(toToken),
    ping: () => {
      ping.get();
    },
    close: () => db.close(),
  };
}
