import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { TOKEN_COLUMNS, tokenValues } from '../../src/store/rows.ts';
import { inTransaction } from '../../src/store/sqlite/connection.ts';
import type { Token } from '../../src/token.ts';
import { createIds, firstSecret } from '../load/ids.ts';
import { type Ids, NEW_PLANT } from '../workload.ts';

/**
 * Lane of the stored plants. A lane is a set of ids that no other lane shares (bench/load/ids.ts). Measured
 * runs use lower lane numbers.
 */
const LANE = 1_023;
const FIRST_OWNER = 'bench';

/** Max plants per transaction, which bounds the size of SQLite's write-ahead log. */
const AT_ONCE = 1_000_000;

/** A plant by its owner and id. */
export interface PlantKey {
  readonly owner: string;
  readonly id: number;
}

/** Changes a store by SQL, without the service. */
export interface StoreFiller extends AsyncDisposable {
  /**
   * Inserts plants of `owners` owners in rotation. The ids are spread evenly over the id range of the
   * workload `createAtRandom`, which uses different ids.
   */
  fill(plants: number, owners: number): Promise<void>;
  /** Inserts plants, unless they exist. */
  addPlants(plants: readonly PlantKey[]): Promise<void>;
  removePlants(plants: readonly PlantKey[]): Promise<void>;
  addTokens(tokens: readonly Token[]): Promise<void>;
  /** Completes deferred work of the database: checkpoints, and statistics for the query planner. */
  settle(): Promise<void>;
}

/** Returns the name of the nth owner, from 0. */
export function ownerName(number: number): string {
  return number === 0 ? FIRST_OWNER : `${FIRST_OWNER}${number}`;
}

/**
 * Returns the owner and id of each plant in the first `count` requests of a run. The requests use the tokens
 * of `owners` in rotation.
 */
export function plantsOf(ids: Ids, count: number, owners: readonly string[]): readonly PlantKey[] {
  const nextId = createIds(ids);
  const first = firstSecret(ids);
  return Array.from({ length: count }, (_, index) => ({
    owner: owners[(first + index) % owners.length] ?? FIRST_OWNER,
    id: nextId(),
  }));
}

export function openFiller(databaseUrl: string): Promise<StoreFiller> {
  return databaseUrl.startsWith('sqlite:')
    ? Promise.resolve(sqliteFiller(databaseUrl.slice('sqlite:'.length)))
    : postgresFiller(databaseUrl);
}

/** Number of lane ids from one stored plant to the next. */
const spacing = (plants: number): bigint => 2n ** 32n / BigInt(plants);

function sqliteFiller(file: string): StoreFiller {
  const db = new DatabaseSync(file, { timeout: 5_000 });
  db.exec('PRAGMA synchronous = OFF');
  const eachOf = (
    sql: string,
    rows: readonly (readonly (string | number | bigint | Uint8Array | null)[])[],
  ): void => {
    const statement = db.prepare(sql);
    inTransaction(db, () => {
      for (const row of rows) statement.run(...row);
    });
  };
  return {
    fill: async (plants, owners) => {
      // Binds BigInt values, since node:sqlite binds a number as REAL.
      const statement = db.prepare(
        `INSERT INTO plants (owner, id, name, tag)
         WITH RECURSIVE counted (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < ?2)
         SELECT CASE n % ?3 WHEN 0 THEN ?4 ELSE ?4 || (n % ?3) END,
                (1 << 43) + n * ?5 * 1024 + ${LANE}, ?6, ?7
           FROM counted`,
      );
      for (let first = 0; first < plants; first += AT_ONCE) {
        const end = Math.min(first + AT_ONCE, plants);
        const fields = [FIRST_OWNER, spacing(plants), NEW_PLANT.name, NEW_PLANT.tag] as const;
        statement.run(BigInt(first), BigInt(end), BigInt(owners), ...fields);
      }
    },
    addPlants: async (plants) =>
      eachOf(
        'INSERT OR IGNORE INTO plants (owner, id, name, tag) VALUES (?, ?, ?, ?)',
        plants.map(({ owner, id }) => [owner, BigInt(id), NEW_PLANT.name, NEW_PLANT.tag]),
      ),
    removePlants: async (plants) =>
      eachOf(
        'DELETE FROM plants WHERE owner = ? AND id = ?',
        plants.map(({ owner, id }) => [owner, BigInt(id)]),
      ),
    addTokens: async (tokens) =>
      eachOf(
        `INSERT INTO tokens (${TOKEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        tokens.map(tokenValues),
      ),
    settle: async () => db.exec('PRAGMA wal_checkpoint(TRUNCATE)'),
    [Symbol.asyncDispose]: async () => db.close(),
  };
}

async function postgresFiller(connectionString: string): Promise<StoreFiller> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  const run = async (text: string, values: readonly unknown[] = []): Promise<void> => {
    await client.query(text, [...values]);
  };
  const columns = (plants: readonly PlantKey[]) => [
    plants.map(({ owner }) => owner),
    plants.map(({ id }) => id),
  ];
  return {
    fill: (plants, owners) =>
      run(
        `INSERT INTO plants (owner, id, name, tag)
         SELECT CASE n % $2 WHEN 0 THEN $3 ELSE $3 || (n % $2) END,
                (1::bigint << 43) + n * $4 * 1024 + ${LANE}, $5, $6
           FROM generate_series(0, $1::bigint - 1) AS n`,
        [plants, owners, FIRST_OWNER, spacing(plants), NEW_PLANT.name, NEW_PLANT.tag],
      ),
    addPlants: (plants) =>
      run(
        `INSERT INTO plants (owner, id, name, tag)
         SELECT owner, id, $3, $4 FROM unnest($1::text[], $2::bigint[]) AS added (owner, id)
             ON CONFLICT DO NOTHING`,
        [...columns(plants), NEW_PLANT.name, NEW_PLANT.tag],
      ),
    removePlants: (plants) =>
      run(
        `DELETE FROM plants USING unnest($1::text[], $2::bigint[]) AS removed (owner, id)
          WHERE plants.owner = removed.owner AND plants.id = removed.id`,
        columns(plants),
      ),
    addTokens: (tokens) => {
      const rows = tokens.map(tokenValues);
      const types = ['text', 'text', 'bytea', 'text', 'text', 'bigint', 'bigint', 'bigint', 'bigint'];
      const arrays = types.map((type, index) => `$${index + 1}::${type}[]`).join();
      return run(
        `INSERT INTO tokens (${TOKEN_COLUMNS}) SELECT * FROM unnest(${arrays})`,
        types.map((_, index) => rows.map((row) => row[index])),
      );
    },
    settle: async () => {
      await run('VACUUM (ANALYZE) plants, tokens');
      await run('CHECKPOINT');
    },
    [Symbol.asyncDispose]: () => client.end(),
  };
}
