import type { PlantRow } from '../../plant.ts';
import {
  type Bulk,
  type Contents,
  type Filling,
  type Inspection,
  type OnConflict,
  StoreNotEmpty,
  type StorePart,
} from '../bulk-store.ts';
import { whyOtherVersion } from '../migrations.ts';
import {
  CHARACTERS_IN_PAGE,
  FIND_ANY_ROW,
  PLANT_COLUMNS,
  ROWS_IN_PAGE,
  type Row,
  readPlantRow,
  toKeyRow,
  toToken,
} from '../rows.ts';
import { type ConnectionOptions, NothingStored, StoreNotOpened } from '../store.ts';
import { Connections } from './connections.ts';
import { withoutCommit, withStoreErrors } from './errors.ts';
import { requirePrimary } from './host/primary-check.ts';
import { SERVICE_NAME, setTimeouts } from './host/sessions.ts';
import {
  appliedMigrations,
  hasMigrationsTable,
  hasStore,
  migrate,
  POSTGRES_MIGRATIONS,
  withTransaction,
} from './migrate.ts';
import { RAW_BYTES } from './pages.ts';
import { retryConflicts } from './retry-conflicts.ts';
import { findTableFaults } from './schema/table-faults.ts';
import { type Connection, createPlants, createTokens, replacePlants } from './statements.ts';
import { inTransaction, queryIfSupported } from './transaction.ts';

/**
 * Lets the server read whole tables in this transaction. The settings of sessions forbid it (`SETTINGS` in sessions.ts);
 * behind a pooler, accounts have the same ones (docs/postgresql.md).
 */
const READ_WHOLE_TABLES = `SELECT set_config(name, 'on', true) FROM pg_settings
                            WHERE name IN ('enable_bitmapscan', 'enable_seqscan')`;

const TABLES = { plants: 'plants', tokens: 'tokens', keys: 'idempotency_keys' } as const;

/**
 * Query for a session of a service in this database. A service closes those idle for 10 s; a pooler keeps them after its end.
 * Every account sees the names of all sessions, but not when those of others were used.
 */
const FIND_SERVICE = `SELECT pid FROM pg_stat_activity
                       WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()
                         AND (state_change IS NULL OR state_change > now() - interval '15 s') LIMIT 1`;

/** Key of the advisory lock for copies: "copies" in ASCII. */
const COPY_LOCK = 0x636f70696573;

/** Opens a store on PostgreSQL for bulk commands such as import, without migrating it. */
export function openPostgresBulk(url: string, options: ConnectionOptions): Bulk {
  const connections = new Connections(url, { ...options, ofCommand: true });
  const timeouts = setTimeouts('LOCAL', options.statementTimeoutMs);

  function attempt<T>(
    begin: `BEGIN${string}`,
    work: (connection: Connection) => Promise<T>,
    endFor: (result: T) => 'COMMIT' | 'ROLLBACK' = () => 'COMMIT',
  ): Promise<T> {
    let isEndSent = false;
    const end = (result: T): 'COMMIT' | 'ROLLBACK' => {
      isEndSent = true;
      return endFor(result);
    };
    return connections
      .use((connection) => inTransaction(connection, `${begin}; ${timeouts}`, () => work(connection), end))
      .catch((error: unknown) => {
        throw isEndSent ? error : withoutCommit(error);
      });
  }

  function transact<T>(begin: `BEGIN${string}`, work: (connection: Connection) => Promise<T>): Promise<T> {
    return withStoreErrors(() => attempt(begin, work));
  }

  return {
    savePlants: (plants, onConflict) =>
      withStoreErrors(() =>
        retryConflicts(() =>
          attempt(
            'BEGIN',
            (connection) => save(connection, plants, onConflict),
            (taken) => (onConflict === 'fail' && taken.length > 0 ? 'ROLLBACK' : 'COMMIT'),
          ),
        ),
      ),
    fill: (work) =>
      transact('BEGIN', async (connection) => {
        await lockForCopy(connection);
        if (!(await isEmpty(connection))) throw new StoreNotEmpty('the store is not empty');
        return work(fillingOf(connection));
      }),
    read: (parts, work) =>
      transact('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY', async (connection) => {
        await lockTables(connection, parts);
        await prepareReads(connection);
        return work(contentsOf(connection));
      }),
    inspect: () =>
      transact('BEGIN READ ONLY', async (connection) => {
        await prepareReads(connection);
        return inspectSchema(connection);
      }),
    isServed: () =>
      transact('BEGIN READ ONLY', async (connection) => {
        const sessions = await connection.query({ text: FIND_SERVICE, values: [SERVICE_NAME] });
        return sessions.length > 0;
        // The server may not have the view, or not allow it.
      }).catch(() => false),
    close: () => connections.close(),
  };
}

async function prepareReads(connection: Connection): Promise<void> {
  await requirePrimary(connection);
  await connection.query({ text: READ_WHOLE_TABLES });
}

/**
 * Waits until no other session rewrites or replaces a table, and keeps it so until the end of the transaction. Call this
 * before its first other statement, which takes the snapshot: a table rewritten after that is empty to the snapshot
 * (https://www.postgresql.org/docs/current/mvcc-caveats.html). Does nothing on a distributed server without LOCK TABLE.
 */
async function lockTables(connection: Connection, parts: readonly StorePart[]): Promise<void> {
  const tables = parts.map((part) => TABLES[part]).join(', ');
  await queryIfSupported(connection, { text: `LOCK TABLE ${tables} IN ACCESS SHARE MODE` });
}

/**
 * Resolves to false if the store in a database has rows. Rejects with StoreNotOpened if the database cannot be migrated, or
 * if its tables cannot be written. Changes nothing: it rolls the migration back.
 */
export function isFillable(url: string): Promise<boolean> {
  return withTransaction(
    url,
    async (connection) => {
      await requirePrimary(connection);
      if ((await hasStore(connection)) && !(await isEmpty(connection))) return false;
      await migrate(connection);
      // Without rows, these only check that the transaction may write to the tables.
      const filling = fillingOf(connection);
      await filling.addPlants([]);
      await filling.addTokens([]);
      await filling.addKeys([]);
      return true;
    },
    () => 'ROLLBACK',
  );
}

/** Saves plants. Resolves to the indexes of the plants whose ids were taken. */
async function save(
  connection: Connection,
  plants: readonly PlantRow[],
  onConflict: OnConflict,
): Promise<readonly number[]> {
  if (onConflict !== 'replace') return indexesOfTaken(plants, await connection.query(createPlants(plants)));
  // Sends only the last version if a plant occurs twice: one statement cannot change a row twice.
  const rest = new Map(plants.map((plant) => [keyOf(plant), plant]));
  const created = await connection.query(createPlants([...rest.values()]));
  for (const row of created) rest.delete(keyOf(row));
  if (rest.size > 0) await connection.query(replacePlants([...rest.values()]));
  return indexesOfTaken(plants, created);
}

/**
 * Returns the index of each plant in `plants` that was not created. `created` holds the owner and id of each
 * created plant.
 */
function indexesOfTaken(
  plants: readonly PlantRow[],
  created: readonly { readonly owner?: unknown; readonly id?: unknown }[],
): readonly number[] {
  const keys = new Set(created.map(keyOf));
  return plants.flatMap((plant, place) => (keys.delete(keyOf(plant)) ? [] : [place]));
}

function keyOf({ owner, id }: { readonly owner?: unknown; readonly id?: unknown }): string {
  return `${owner} ${id}`;
}

function contentsOf(connection: Connection): Contents {
  let cursors = 0;

  /**
   * Opens a cursor, which ends with the transaction. Resolves to a function that fetches the next rows; none at the
   * end.
   */
  async function openCursor(text: string, values: readonly string[] = []) {
    cursors += 1;
    const name = `cursor_${cursors}`;
    await connection.query({ text: `DECLARE ${name} NO SCROLL CURSOR FOR ${text}`, values });
    return (count: number) => connection.query({ text: `FETCH ${count} FROM ${name}` });
  }

  async function* pages<T>(text: string, toRow: (row: Row) => T): AsyncGenerator<readonly T[]> {
    const fetch = await openCursor(text);
    for (;;) {
      const rows = await fetch(ROWS_IN_PAGE);
      if (rows.length === 0) return;
      yield rows.map(toRow);
    }
  }

  /**
   * Reads plants in pages that fit into memory. A second cursor reads only the sizes of the same plants, and
   * shows how many to fetch. PostgreSQL knows the size of a long text without reading the text.
   */
  async function* plantPages(order: string, values: readonly string[]): AsyncGenerator<readonly PlantRow[]> {
    const fetchSizes = await openCursor(`SELECT ${RAW_BYTES} AS bytes FROM plants ${order}`, values);
    const fetch = await openCursor(`SELECT ${PLANT_COLUMNS} FROM plants ${order}`, values);
    const counts = countsOfPages(() => fetchSizes(ROWS_IN_PAGE));
    for (;;) {
      // In a store that others fill meanwhile, the cursors may differ.
      const { value: count = 1 } = await counts.next();
      const rows = await fetch(count);
      if (rows.length === 0) return;
      yield rows.map(readPlantRow);
    }
  }

  return {
    countPlants: async (owner) => {
      const [row] = await connection.query(
        owner === undefined
          ? { text: 'SELECT count(*) AS count FROM plants' }
          : { text: 'SELECT count(*) AS count FROM plants WHERE owner = $1', values: [owner] },
      );
      return Number(row?.count);
    },
    plants: (owner) =>
      owner === undefined
        ? plantPages('ORDER BY owner, id', [])
        : plantPages('WHERE owner = $1 ORDER BY id', [owner]),
    tokens: () => pages('SELECT * FROM tokens ORDER BY created_at, id COLLATE "C"', toToken),
    keys: () => pages('SELECT * FROM idempotency_keys', toKeyRow),
  };
}

/** Yields the number of plants in each page: a page ends with the plant that makes it too long. */
async function* countsOfPages(nextSizes: () => Promise<readonly Row[]>): AsyncGenerator<number, undefined> {
  for (;;) {
    const sizes = await nextSizes();
    if (sizes.length === 0) return undefined;
    let count = 0;
    let sum = 0;
    for (const { bytes } of sizes) {
      count += 1;
      sum += Number(bytes);
      if (sum < CHARACTERS_IN_PAGE) continue;
      yield count;
      count = 0;
      sum = 0;
    }
    if (count > 0) yield count;
  }
}

function fillingOf(connection: Connection): Filling {
  return {
    ...contentsOf(connection),
    addPlants: async (plants) => {
      await connection.query(createPlants(plants));
    },
    addTokens: async (tokens) => {
      await connection.query(createTokens(tokens));
    },
    addKeys: async (keys) => {
      await connection.query({
        text: `INSERT INTO idempotency_keys (owner, key, digest, outcome, first_used_at)
               SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::bigint[])`,
        values: [
          keys.map(({ owner }) => owner),
          keys.map(({ key }) => key),
          keys.map(({ digest }) => digest),
          keys.map(({ outcome }) => outcome),
          keys.map(({ firstUsedAt }) => firstUsedAt),
        ],
      });
    },
  };
}

/**
 * Rejects if another copy fills the store: each would find it empty, and not see the rows of the other. Does not lock the
 * tables, which distributed databases lack: the check of the copy finds the rows of other writers.
 */
async function lockForCopy(connection: Connection): Promise<void> {
  const [row] = await connection.query({ text: `SELECT pg_try_advisory_xact_lock(${COPY_LOCK}) AS locked` });
  if (row?.locked !== true) throw new NothingStored('another copy fills this store; wait until it ends');
}

async function isEmpty(connection: Connection): Promise<boolean> {
  return (await connection.query({ text: FIND_ANY_ROW })).length === 0;
}

async function inspectSchema(connection: Connection): Promise<Inspection> {
  if (!(await hasMigrationsTable(connection)))
    throw new StoreNotOpened(
      'there is no store in this database yet; start the service or run `plant-store migrate` to create one',
    );
  const otherVersion = whyOtherVersion(POSTGRES_MIGRATIONS, await appliedMigrations(connection));
  if (otherVersion !== undefined) return { otherVersion, damages: [] };
  return { damages: await findTableFaults(connection) };
}
