import type { Statement } from './connections.ts';
import { isOfOneOwner } from './deletes.ts';

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
