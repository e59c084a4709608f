import type { Token } from '../../token.ts';
import type { PlantRow } from '../bulk-store.ts';
import { columnsOf, TOKEN_COLUMNS } from '../rows.ts';
import type { Statement } from './connections.ts';

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
