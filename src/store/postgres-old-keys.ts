import { type Connection, type Connections, inTransaction, type Row } from './postgres-connections.ts';

const KEYS_AT_ONCE = 1_000;

/**
 * Removes the idempotency keys that were first used at a time (in milliseconds since the epoch) or earlier. Those that
 * somebody else holds are passed over, so that nobody waits for anybody. Resolves to how many it removed.
 */
export async function forgetKeys(connections: Connections, until: number): Promise<number> {
  for (let total = 0; ; ) {
    const old = await connections.query({
      name: 'find-old-keys',
      text: `SELECT owner, key FROM idempotency_keys WHERE first_used_at <= $1
              ORDER BY first_used_at LIMIT ${KEYS_AT_ONCE}`,
      values: [until],
    });
    if (old.length === 0) return total;
    const removed = await connections.use((connection) =>
      inTransaction(connection, 'BEGIN', () => removeKeys(connection, old, until)),
    );
    total += removed;
    if (old.length < KEYS_AT_ONCE || removed === 0) return total;
  }
}

/** One statement for each owner: where owners are spread over servers (Citus), rows are locked on one of them alone. */
async function removeKeys(connection: Connection, old: readonly Row[], until: number): Promise<number> {
  const owners = Map.groupBy(old, ({ owner }) => owner);
  const removed = await Promise.all(
    [...owners].map(([owner, rows]) =>
      connection.query({
        name: 'forget-keys',
        text: `DELETE FROM idempotency_keys WHERE owner = $1 AND key IN
                 (SELECT key FROM idempotency_keys
                   WHERE owner = $1 AND key = ANY ($2::text[]) AND first_used_at <= $3
                     FOR UPDATE SKIP LOCKED)
               RETURNING key`,
        values: [owner, rows.map(({ key }) => key), until],
      }),
    ),
  );
  return removed.flat().length;
}
