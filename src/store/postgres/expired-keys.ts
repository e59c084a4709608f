import type { Row } from '../rows.ts';
import type { Connections } from './connections.ts';
import { retryConflicts } from './retry-conflicts.ts';
import { type Connection, haveSameKey } from './statements.ts';
import { inTransaction } from './transaction.ts';

/** Max expired keys that one statement deletes. */
export const EXPIRED_KEYS_AT_ONCE = 1_000;

/**
 * Max keys deleted in one run if each owner has a separate statement. This limit is lower than
 * EXPIRED_KEYS_AT_ONCE, since many statements delay later writes on the same connection.
 */
const KEYS_AT_ONCE_PER_OWNER = 100;

/** Ages of keys: times of their first use in milliseconds since the epoch, both inclusive. */
interface Ages {
  readonly from: number;
  readonly until: number;
}

/**
 * Deletes idempotency keys that were first used at `until` (milliseconds since the epoch) or earlier. With
 * `perOwner`, each owner has a separate statement. Skips locked keys instead of waiting for them. Retries
 * conflicts with other transactions.
 */
export async function deleteExpiredKeys(
  connections: Connections,
  until: number,
  perOwner: boolean,
): Promise<void> {
  const removeSome = perOwner ? removePerOwner : removeTogether;
  // Each batch begins where the last one ended: an old transaction keeps the deleted keys in the index.
  let oldest: number | undefined = Number.MIN_SAFE_INTEGER;
  while (oldest !== undefined) {
    const ages: Ages = { from: oldest, until };
    oldest = await retryConflicts(() => removeSome(connections, ages));
  }
}

/** Deletes the oldest keys. Resolves to the age of the newest one of them, or undefined for none, as does `removePerOwner`. */
async function removeTogether(connections: Connections, { from, until }: Ages): Promise<number | undefined> {
  const removed = await connections.query({
    name: 'delete-keys',
    text: `DELETE FROM idempotency_keys AS stored
            USING (SELECT owner, key FROM idempotency_keys WHERE first_used_at BETWEEN $1 AND $2
                    ORDER BY first_used_at LIMIT ${EXPIRED_KEYS_AT_ONCE} FOR UPDATE SKIP LOCKED) AS expired
            WHERE ${haveSameKey('stored', 'expired', 'key')}
           RETURNING stored.first_used_at`,
    values: [from, until],
  });
  return newestOf(removed);
}

async function removePerOwner(connections: Connections, { from, until }: Ages): Promise<number | undefined> {
  const old = await connections.read({
    name: 'find-old-keys',
    text: `SELECT owner, key, first_used_at FROM idempotency_keys WHERE first_used_at BETWEEN $1 AND $2
            ORDER BY first_used_at LIMIT ${KEYS_AT_ONCE_PER_OWNER}`,
    values: [from, until],
  });
  if (old.length === 0) return undefined;
  const removed = await connections.use((connection) =>
    inTransaction(connection, 'BEGIN', () => removeKeys(connection, old, until)),
  );
  return removed > 0 ? newestOf(old) : undefined;
}

function newestOf(keys: readonly Row[]): number | undefined {
  return keys.length === 0 ? undefined : Math.max(...keys.map((row) => Number(row.first_used_at)));
}

/** Resolves to the number of deleted keys. */
async function removeKeys(connection: Connection, old: readonly Row[], until: number): Promise<number> {
  const owners = Map.groupBy(old, ({ owner }) => owner);
  const removed = await Promise.all(
    [...owners].map(([owner, rows]) =>
      connection.query({
        name: 'delete-keys-of-owner',
        text: `DELETE FROM idempotency_keys WHERE owner = $1 AND key = ANY (ARRAY
                 (SELECT key FROM idempotency_keys
                   WHERE owner = $1 AND key = ANY ($2::text[]) AND first_used_at <= $3
                     FOR UPDATE SKIP LOCKED))
               RETURNING key`,
        values: [owner, rows.map(({ key }) => key), until],
      }),
    ),
  );
  return removed.flat().length;
}
