import type { Row } from '../rows.ts';
import { EXPIRED_KEYS_AT_ONCE } from '../store.ts';
import type { Connections } from './connections.ts';
import { retryConflicts } from './retry-conflicts.ts';
import { type Connection, haveSameKey } from './statements.ts';
import { inTransaction } from './transaction.ts';

/**
 * Max keys deleted in one run if each owner has a separate statement. This limit is lower than
 * EXPIRED_KEYS_AT_ONCE, since many statements delay later writes on the same connection.
 */
const KEYS_AT_ONCE_PER_OWNER = 100;

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
  let removed: number;
  do removed = await retryConflicts(() => removeSome(connections, until));
  while (removed > 0);
}

/** Resolves to the number of deleted keys, as does `removePerOwner`. */
async function removeTogether(connections: Connections, until: number): Promise<number> {
  const removed = await connections.query({
    name: 'delete-keys',
    text: `DELETE FROM idempotency_keys AS stored
            USING (SELECT owner, key FROM idempotency_keys WHERE first_used_at <= $1
                    ORDER BY first_used_at LIMIT ${EXPIRED_KEYS_AT_ONCE} FOR UPDATE SKIP LOCKED) AS expired
            WHERE ${haveSameKey('stored', 'expired', 'key')}
           RETURNING stored.key`,
    values: [until],
  });
  return removed.length;
}

async function removePerOwner(connections: Connections, until: number): Promise<number> {
  const old = await connections.read({
    name: 'find-old-keys',
    text: `SELECT owner, key FROM idempotency_keys WHERE first_used_at <= $1
            ORDER BY first_used_at LIMIT ${KEYS_AT_ONCE_PER_OWNER}`,
    values: [until],
  });
  if (old.length === 0) return 0;
  return connections.use((connection) =>
    inTransaction(connection, 'BEGIN', () => removeKeys(connection, old, until)),
  );
}

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
