import type { Statement } from './connections.ts';

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

export function isOfOneOwner(keys: readonly { readonly owner: string }[]): boolean {
  return keys.every(({ owner }) => owner === keys[0]?.owner);
}
