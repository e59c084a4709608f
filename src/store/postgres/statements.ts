import type { Token } from '../../token.ts';
import type { PlantRow } from '../bulk-store.ts';
import { columnsOf, TOKEN_COLUMNS } from '../rows.ts';

/** A statement: its text, its values, and the name it is prepared under when it comes often. */
export interface Statement {
  readonly name?: string;
  readonly text: string;
  readonly values?: readonly unknown[];
}

export type Row = Readonly<Record<string, unknown>>;

/** A connection held for a while. */
export interface Connection {
  /**
   * Sends a statement without waiting for those before it (pipelining). Rejects with the error the server answers, or
   * with StoreUnavailable when it answers nothing.
   */
  query(statement: Statement): Promise<readonly Row[]>;
}

const INSERT_PLANTS = `INSERT INTO plants (owner, id, name, tag)
  SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[])`;

/** Creates plants that are all new; when one is not, the server refuses them all (23505). */
export function createNewPlants(plants: readonly PlantRow[]): Statement {
  return { name: 'create-new-plants', text: INSERT_PLANTS, values: plantColumns(plants) };
}

/** Creates the plants that are not there yet and returns their keys; of several with one key, the first. */
export function createPlants(plants: readonly PlantRow[]): Statement {
  return {
    name: 'create-plants',
    text: `${INSERT_PLANTS} ON CONFLICT DO NOTHING RETURNING owner, id`,
    values: plantColumns(plants),
  };
}

/** Creates plants, or overwrites those that are there. No two may have one key. */
export function replacePlants(plants: readonly PlantRow[]): Statement {
  return {
    text: `${INSERT_PLANTS} ON CONFLICT (owner, id) DO UPDATE SET name = excluded.name, tag = excluded.tag`,
    values: plantColumns(plants),
  };
}

/** In the order of their keys, so that nobody who does so too is waited for in a circle. */
function plantColumns(plants: readonly PlantRow[]): readonly unknown[] {
  const sorted = plants.toSorted(byKey);
  return [
    sorted.map(({ owner }) => owner),
    sorted.map(({ id }) => id.toString()),
    sorted.map(({ name }) => name),
    sorted.map(({ tag }) => tag),
  ];
}

function byKey(a: PlantRow, b: PlantRow): number {
  if (a.owner !== b.owner) return a.owner < b.owner ? -1 : 1;
  return a.id < b.id ? -1 : a.id > b.id ? 1 : 0;
}

/** Creates tokens and returns their ids. */
export function createTokens(tokens: readonly Token[]): Statement {
  const rows = tokens.map(columnsOf);
  return {
    name: 'create-tokens',
    text: `INSERT INTO tokens (${TOKEN_COLUMNS})
           SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[],
                                $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[]) RETURNING id`,
    values: [0, 1, 2, 3, 4, 5, 6, 7, 8].map((column) => rows.map((row) => row[column])),
  };
}

interface PlantKey {
  readonly owner: string;
  readonly id: bigint;
}

/**
 * Deletes plants, and returns the keys of those that were there. The rows are locked in the order of their keys first: a
 * DELETE by itself takes them in whatever order its plan meets them.
 */
export function deletePlants(keys: readonly PlantKey[]): Statement {
  const ids = keys.map(({ id }) => id.toString());
  if (isOfOneOwner(keys))
    return {
      name: 'delete-plants-of-owner',
      text: `WITH locked AS
               (SELECT id FROM plants WHERE owner = $1 AND id = ANY ($2::bigint[]) ORDER BY id FOR UPDATE)
             DELETE FROM plants WHERE owner = $1 AND id IN (SELECT id FROM locked) RETURNING owner, id`,
      values: [keys[0]?.owner, ids],
    };
  return {
    name: 'delete-plants',
    text: `WITH locked AS
             (SELECT owner, id FROM plants WHERE (owner, id) IN (SELECT * FROM unnest($1::text[], $2::bigint[]))
               ORDER BY owner, id FOR UPDATE)
           DELETE FROM plants WHERE (owner, id) IN (SELECT owner, id FROM locked) RETURNING owner, id`,
    values: [keys.map(({ owner }) => owner), ids],
  };
}

function isOfOneOwner(keys: readonly { readonly owner: string }[]): boolean {
  return keys.every(({ owner }) => owner === keys[0]?.owner);
}

interface Key {
  readonly owner: string;
  readonly key: string;
}

/** Finds what was stored under idempotency keys. */
export function findKeys(keys: readonly Key[]): Statement {
  const { name, where, values } = selection(keys);
  return {
    name: `find-${name}`,
    text: `SELECT owner, key, digest FROM idempotency_keys WHERE ${where}`,
    values,
  };
}

/** Removes idempotency keys, whatever is stored under them. */
export function removeKeys(keys: readonly Key[]): Statement {
  const { name, where, values } = selection(keys);
  return { name: `remove-${name}`, text: `DELETE FROM idempotency_keys WHERE ${where}`, values };
}

// With one owner named, a server that spreads owners goes to one place (Citus), and locks nothing in the others.
function selection(keys: readonly Key[]) {
  const names = keys.map(({ key }) => key);
  if (isOfOneOwner(keys))
    return {
      name: 'keys-of-owner',
      where: 'owner = $1 AND key = ANY ($2::text[])',
      values: [keys[0]?.owner, names],
    };
  return {
    name: 'keys',
    where: '(owner, key) IN (SELECT * FROM unnest($1::text[], $2::text[]))',
    values: [keys.map((key) => key.owner), names],
  };
}
