import { digestPlant, type Plant, type PlantRow, plantFields } from '../../plant.ts';
import type { Token } from '../../token.ts';
import { PLANT_COLUMNS, type Row, TOKEN_COLUMNS, tokenColumns, tokenValues } from '../rows.ts';
import { KEY_LIFETIME_MS, type Write } from '../store.ts';

/** An SQL statement with its values, and with a name if the server should prepare it. */
export interface Statement {
  readonly name?: string;
  readonly text: string;
  readonly values?: readonly unknown[];
}

export interface Connection {
  /**
   * Sends a statement without waiting for the results of earlier statements (pipelining). Rejects with the
   * server's error, with StoreUnavailable if the server does not answer, with NothingStored if the statement was not
   * sent, or with StatementRejected if the server answers COMMIT with a rollback.
   */
  query(statement: Statement): Promise<readonly Row[]>;
}

/**
 * SQL of the server's current time, in milliseconds since the epoch. All instances share this clock. The function is
 * stable, not volatile as `clock_timestamp`: Citus accepts it in more statements. With 1000.0, no operator of another user fits
 * better.
 */
export const NOW_MS = 'floor(extract(epoch FROM statement_timestamp()) * 1000.0)::bigint';

/** Renders integers as an array of SQL. pg would quote and escape each one. */
export function integerArray(integers: readonly (bigint | number)[]): string {
  return `{${integers.join(',')}}`;
}

/** SQL types of the columns that hold the fields of a plant. */
export const FIELD_TYPES: Readonly<Record<keyof Plant, 'text' | 'integer' | 'bigint'>> = {
  name: 'text',
  tag: 'text',
};

const FIELD_PARAMETERS = plantFields
  .map((field, place) => `$${place + 3}::${FIELD_TYPES[field]}[]`)
  .join(', ');

const INSERT_PLANTS = `INSERT INTO plants (${PLANT_COLUMNS})
  SELECT * FROM unnest($1::text[], $2::bigint[], ${FIELD_PARAMETERS})`;

const ASSIGNMENTS = plantFields.map((field) => `${field} = excluded.${field}`).join(', ');

export type Creation = Extract<Write, { kind: 'createPlant' }>;
export type KeyedCreation = Creation & { readonly idempotencyKey: string };

export function isKeyed(creation: Creation): creation is KeyedCreation {
  return creation.idempotencyKey !== null;
}

/**
 * Creates plants that are all new, and stores the idempotency keys, which are new too. If a plant or a key exists, the server
 * rejects the whole statement (error 23505).
 */
export function createNewPlants(creations: readonly Creation[]): Statement {
  const keyed = creations.filter(isKeyed);
  const plants = plantColumns(creations);
  if (keyed.length === 0) return { name: 'create-new-plants', text: INSERT_PLANTS, values: plants };
  // The count makes the server insert all keys before the plants, as other batches do. The INSERT of no row fails if the unique
  // index on keys is missing (42P10), as the ON CONFLICT of other batches does.
  return {
    name: 'create-new-plants-and-keys',
    text: `WITH claimed AS (${insertKeys(plants.length + 1)} RETURNING 1),
                unique_key AS (INSERT INTO idempotency_keys SELECT * FROM idempotency_keys WHERE false
                               ON CONFLICT (owner, key) DO NOTHING)
           ${INSERT_PLANTS} WHERE (SELECT count(*) FROM claimed) > 0`,
    values: [...plants, ...keyColumns(keyed)],
  };
}

/**
 * Creates the plants that do not exist, and returns the owner and id of each. If several plants have the same
 * owner and id, creates only the first.
 */
export function createPlants(plants: readonly PlantRow[]): Statement {
  return {
    name: 'create-plants',
    text: `${INSERT_PLANTS} ON CONFLICT DO NOTHING RETURNING owner, id`,
    values: plantColumns(plants),
  };
}

/** Creates or overwrites plants. No two of the plants may have the same owner and id. */
export function replacePlants(plants: readonly PlantRow[]): Statement {
  return {
    text: `${INSERT_PLANTS} ON CONFLICT (owner, id) DO UPDATE SET ${ASSIGNMENTS}`,
    values: plantColumns(plants),
  };
}

/** Returns the values of plants by column. Sorts the plants by owner and id to prevent deadlocks. */
function plantColumns(plants: readonly PlantRow[]): readonly unknown[] {
  const sorted = plants.toSorted(byKey);
  return [
    sorted.map(({ owner }) => owner),
    integerArray(sorted.map(({ id }) => id)),
    ...plantFields.map((field) => sorted.map((plant) => plant[field])),
  ];
}

function byKey(a: PlantKey, b: PlantKey): number {
  if (a.owner !== b.owner) return a.owner < b.owner ? -1 : 1;
  return a.id < b.id ? -1 : a.id > b.id ? 1 : 0;
}

/** Creates tokens, and returns the id of each. */
export function createTokens(tokens: readonly Token[]): Statement {
  const rows = tokens.map(tokenValues);
  return {
    name: 'create-tokens',
    text: `INSERT INTO tokens (${TOKEN_COLUMNS})
           SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[],
                                $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[]) RETURNING id`,
    values: tokenColumns.map((_column, place) => rows.map((row) => row[place])),
  };
}

interface PlantKey {
  readonly owner: string;
  readonly id: bigint;
}

/**
 * SQL that compares the keys of rows of a table and of a list, so that the server can only look up each key in the index.
 * With `=`, it may plan to join by hash or merge, which reads the whole table, if the table is small at that time.
 */
export function haveSameKey(table: string, list: string, column: 'id' | 'key'): string {
  return `${table}.owner = ANY (ARRAY[${list}.owner])
          AND ${table}.${column} BETWEEN ${list}.${column} AND ${list}.${column}`;
}

/**
 * Deletes plants, and returns the owner and id of each deleted plant. To prevent deadlocks, sorts the keys: the server looks up one
 * after the other, and locks its row. With `ofOneOwner`, names the owner of all keys only once, and first locks the rows, since a
 * DELETE with a list of ids locks rows in any order.
 */
export function deletePlants(keys: readonly PlantKey[], ofOneOwner: boolean): Statement {
  const sorted = keys.toSorted(byKey);
  const ids = integerArray(sorted.map(({ id }) => id));
  if (ofOneOwner)
    return {
      name: 'delete-plants-of-owner',
      text: `WITH locked AS
               (SELECT id FROM plants WHERE owner = $1 AND id = ANY ($2::bigint[]) ORDER BY id FOR UPDATE)
             DELETE FROM plants WHERE owner = $1 AND id = ANY (ARRAY (SELECT id FROM locked)) RETURNING owner, id`,
      values: [sorted[0]?.owner, ids],
    };
  return {
    name: 'delete-plants',
    text: `DELETE FROM plants USING unnest($1::text[], $2::bigint[]) AS wanted (owner, id)
            WHERE ${haveSameKey('plants', 'wanted', 'id')} RETURNING plants.owner, plants.id`,
    values: [sorted.map(({ owner }) => owner), ids],
  };
}

/** Returns the INSERT of idempotency keys. Its parameters are `keyColumns`, and have numbers from `first` on. */
function insertKeys(first: number): string {
  return `INSERT INTO idempotency_keys AS old (owner, key, digest, outcome, first_used_at)
          SELECT owner, key, digest, 'created', ${NOW_MS}
            FROM unnest($${first}::text[], $${first + 1}::text[], $${first + 2}::bytea[]) AS new (owner, key, digest)`;
}

/** Returns the idempotency keys by column. Sorts them by owner and key to prevent deadlocks. */
function keyColumns(creations: readonly KeyedCreation[]): readonly unknown[] {
  const sorted = creations.toSorted((a, b) => (nameOfKey(a) < nameOfKey(b) ? -1 : 1));
  return [
    sorted.map(({ owner }) => owner),
    sorted.map(({ idempotencyKey }) => idempotencyKey),
    sorted.map(digestPlant),
  ];
}

/** Returns a text that no two idempotency keys share. */
export function nameOfKey({ owner, idempotencyKey }: Key): string {
  return `${owner} ${idempotencyKey}`;
}

/**
 * Inserts idempotency keys with the outcome 'created', and returns the owner and key of each. Overwrites a stored key if it has
 * expired or has the outcome 'idTaken'. Earlier service versions stored 'idTaken' for failed creations. Other transactions with the
 * same keys wait until this transaction ends.
 */
export function claimKeys(creations: readonly KeyedCreation[]): Statement {
  return {
    name: 'claim-keys',
    text: `${insertKeys(1)}
           ON CONFLICT (owner, key) DO UPDATE
             SET digest = excluded.digest, outcome = excluded.outcome, first_used_at = excluded.first_used_at
             WHERE old.first_used_at <= excluded.first_used_at - ${KEY_LIFETIME_MS} OR old.outcome = 'idTaken'
           RETURNING owner, key`,
    values: keyColumns(creations),
  };
}

type Key = Pick<KeyedCreation, 'owner' | 'idempotencyKey'>;

/** Finds idempotency keys, also expired ones, with their digests. With `ofOneOwner`, names the owner of all keys only once. */
export function findKeys(keys: readonly Key[], ofOneOwner: boolean): Statement {
  const { name, list, where, values } = selection(keys, ofOneOwner);
  return {
    name: `find-${name}`,
    text: `SELECT stored.owner, stored.key, digest FROM ${['idempotency_keys AS stored', ...list].join(', ')} WHERE ${where}`,
    values,
  };
}

/** Deletes idempotency keys. With `ofOneOwner`, names the owner of all keys only once. */
export function removeKeys(keys: readonly Key[], ofOneOwner: boolean): Statement {
  const { name, list, where, values } = selection(keys, ofOneOwner);
  const using = list.map((one) => `USING ${one}`).join('');
  return {
    name: `remove-${name}`,
    text: `DELETE FROM idempotency_keys AS stored ${using} WHERE ${where}`,
    values,
  };
}

// Builds the clauses that select idempotency keys. With `ofOneOwner`, Citus, which shards by owner, locks only the shard of
// this owner.
function selection(keys: readonly Key[], ofOneOwner: boolean) {
  const names = keys.map(({ idempotencyKey }) => idempotencyKey);
  if (ofOneOwner)
    return {
      name: 'keys-of-owner',
      list: [],
      where: 'stored.owner = $1 AND stored.key = ANY ($2::text[])',
      values: [keys[0]?.owner, names],
    };
  return {
    name: 'keys',
    list: ['unnest($1::text[], $2::text[]) AS wanted (owner, key)'],
    where: haveSameKey('stored', 'wanted', 'key'),
    values: [keys.map(({ owner }) => owner), names],
  };
}
