import {
  type Bulk,
  type Contents,
  type Filling,
  type IfTaken,
  type PlantRow,
  StoreNotEmpty,
} from '../bulk.ts';
import type { ConnectionOptions } from '../store.ts';
import { inspectMigrations } from './migrations.ts';
import { type Connection, Connections, inTransaction, type Row } from './postgres-connections.ts';
import { meaningOf } from './postgres-errors.ts';
import { POSTGRES_MIGRATIONS } from './postgres-migrate.ts';
import { retrying } from './postgres-retry.ts';
import { columnsOf, toKeyRow, toPlantRow, toToken } from './rows.ts';

/** A page is as many rows as these, going by the size of those before; the first ones may be large. */
const ROWS_IN_PAGE = 1_000;
const CHARACTERS_IN_PAGE = 4 * 1024 * 1024;
const ROWS_IN_FIRST_PAGE = 16;

/** Opens a store on PostgreSQL for commands that move it in bulk; its schema is left as it is. */
export function openPostgresBulk(url: string, options: ConnectionOptions): Bulk {
  const connections = new Connections(url, options);

  function transact<T>(
    begin: `BEGIN${string}`,
    work: (connection: Connection) => Promise<T>,
    endFor?: (result: T) => 'COMMIT' | 'ROLLBACK',
  ): Promise<T> {
    return connections.use((bare) => {
      const connection = explaining(bare);
      return inTransaction(connection, begin, () => work(connection), endFor);
    });
  }

  return {
    savePlants: (plants, ifTaken) =>
      retrying(() =>
        transact(
          'BEGIN',
          (connection) => save(connection, plants, ifTaken),
          (taken) => (ifTaken === 'refuse' && taken.length > 0 ? 'ROLLBACK' : 'COMMIT'),
        ),
      ),
    fill: (work) =>
      transact('BEGIN', async (connection) => {
        await refuseUnlessEmpty(connection);
        return work(fillingOf(connection));
      }),
    read: (work) =>
      transact('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY', (connection) =>
        work(contentsOf(connection)),
      ),
    inspect: () => transact('BEGIN READ ONLY', inspect),
    close: () => connections.close(),
  };
}

/** The errors of a connection in the words of the port; those of the work that uses it stay what they are. */
function explaining(connection: Connection): Connection {
  return {
    query: (statement) =>
      connection.query(statement).catch((error: unknown) => {
        throw meaningOf(error);
      }),
  };
}

/** Saves plants in the order of their keys, so that nobody who does so too is waited for in a circle. */
async function save(
  connection: Connection,
  plants: readonly PlantRow[],
  ifTaken: IfTaken,
): Promise<readonly number[]> {
  if (ifTaken !== 'replace') return placesLeft(plants, await insertPlants(connection, plants));
  const existing = await connection.query({
    text: 'SELECT owner, id FROM plants WHERE (owner, id) IN (SELECT * FROM unnest($1::text[], $2::bigint[]))',
    values: columns(plants).slice(0, 2),
  });
  // A row cannot be changed twice by one statement, so the last of each plant stands for all.
  const last = new Map(plants.map((plant) => [keyOf(plant), plant]));
  await connection.query({
    text: `INSERT INTO plants (owner, id, name, tag)
           SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[])
           ON CONFLICT (owner, id) DO UPDATE SET name = excluded.name, tag = excluded.tag`,
    values: columns([...last.values()].sort(byKey)),
  });
  const known = new Set(existing.map(keyOf));
  return placesLeft(
    plants,
    [...last.values()].filter((plant) => !known.has(keyOf(plant))),
  );
}

/** Resolves to the keys of those that were not there yet; of several with one key, the first. */
function insertPlants(connection: Connection, plants: readonly PlantRow[]): Promise<readonly Row[]> {
  return connection.query({
    name: 'insert-plants',
    text: `INSERT INTO plants (owner, id, name, tag)
           SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[])
           ON CONFLICT DO NOTHING RETURNING owner, id`,
    values: columns(plants.toSorted(byKey)),
  });
}

/** The places of the plants that did not create their rows, given those that were created. */
function placesLeft(
  plants: readonly PlantRow[],
  created: readonly { readonly owner?: unknown; readonly id?: unknown }[],
): readonly number[] {
  const keys = new Set(created.map(keyOf));
  return plants.flatMap((plant, place) => (keys.delete(keyOf(plant)) ? [] : [place]));
}

function keyOf({ owner, id }: { readonly owner?: unknown; readonly id?: unknown }): string {
  return `${owner} ${id}`;
}

function byKey(a: PlantRow, b: PlantRow): number {
  if (a.owner !== b.owner) return a.owner < b.owner ? -1 : 1;
  return a.id < b.id ? -1 : a.id > b.id ? 1 : 0;
}

function columns(plants: readonly PlantRow[]): readonly unknown[] {
  return [
    plants.map(({ owner }) => owner),
    plants.map(({ id }) => id.toString()),
    plants.map(({ name }) => name),
    plants.map(({ tag }) => tag),
  ];
}

function contentsOf(connection: Connection): Contents {
  async function* pages<T>(
    select: string,
    toRow: (row: Row) => T,
    values: readonly string[] = [],
  ): AsyncGenerator<readonly T[]> {
    await connection.query({ text: `DECLARE pages NO SCROLL CURSOR FOR ${select}`, values });
    try {
      for (let count = ROWS_IN_FIRST_PAGE; ; ) {
        const rows = await connection.query({ text: `FETCH ${count} FROM pages` });
        if (rows.length === 0) return;
        yield rows.map(toRow);
        const characters = rows.reduce((sum, row) => sum + lengthOf(row.name) + lengthOf(row.tag), 1);
        const fitting = Math.ceil((CHARACTERS_IN_PAGE / characters) * rows.length);
        count = Math.min(fitting, 4 * count, ROWS_IN_PAGE);
      }
    } finally {
      // In a transaction that failed there is nothing left to close.
      await connection.query({ text: 'CLOSE pages' }).catch(() => undefined);
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
        ? pages('SELECT owner, id, name, tag FROM plants ORDER BY owner, id', toPlantRow)
        : pages('SELECT owner, id, name, tag FROM plants WHERE owner = $1 ORDER BY id', toPlantRow, [owner]),
    tokens: () => pages('SELECT * FROM tokens ORDER BY created_at, id', toToken),
    keys: () => pages('SELECT * FROM idempotency_keys', toKeyRow),
  };
}

function lengthOf(value: unknown): number {
  return typeof value === 'string' ? value.length : 0;
}

function fillingOf(connection: Connection): Filling {
  return {
    ...contentsOf(connection),
    addPlants: async (plants) => {
      await insertPlants(connection, plants);
    },
    addTokens: async (tokens) => {
      const rows = tokens.map(columnsOf);
      await connection.query({
        text: `INSERT INTO tokens (owner, id, digest, name, scopes, created_at, expires_at, revoked_at, last_used_at)
               SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[],
                                    $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])`,
        values: [0, 1, 2, 3, 4, 5, 6, 7, 8].map((column) => rows.map((row) => toParameter(row[column]))),
      });
    },
    addKeys: async (keys) => {
      await connection.query({
        text: `INSERT INTO idempotency_keys (owner, key, digest, outcome, first_used_at)
               SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::bigint[])`,
        values: [
          keys.map(({ owner }) => owner),
          keys.map(({ key }) => key),
          keys.map(({ digest }) => toParameter(digest)),
          keys.map(({ outcome }) => outcome),
          keys.map(({ firstUsedAt }) => firstUsedAt),
        ],
      });
    },
  };
}

function toParameter(value: unknown): unknown {
  return value instanceof Uint8Array ? Buffer.from(value) : value;
}

async function refuseUnlessEmpty(connection: Connection): Promise<void> {
  const found = await connection.query({
    text: `SELECT 1 FROM plants UNION ALL SELECT 1 FROM tokens UNION ALL SELECT 1 FROM idempotency_keys LIMIT 1`,
  });
  if (found.length > 0) throw new StoreNotEmpty('the store is not empty');
}

async function inspect(connection: Connection): Promise<readonly string[]> {
  const [table] = await connection.query({ text: "SELECT to_regclass('migrations') IS NOT NULL AS found" });
  if (table?.found !== true) return ['this is a database of something else, or an empty one'];
  const applied = await connection.query({ text: 'SELECT name FROM migrations' });
  return inspectMigrations(
    POSTGRES_MIGRATIONS,
    applied.map(({ name }) => String(name)),
  );
}
