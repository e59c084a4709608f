import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commitBatch } from '../../../src/store/postgres/batch.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { migratePostgres } from '../../../src/store/postgres/migrate.ts';
import { createTokens } from '../../../src/store/postgres/statements.ts';
import { inTransaction } from '../../../src/store/postgres/transaction.ts';
import type { Outcome, Write } from '../../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../../src/token.ts';
import { execute, connections as options, postgres, rowsOf } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { createOnce } from '../../support/store-setup.ts';

const WAITING = `SELECT FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock'`;

const at = Date.now();
const tokens = ['one', 'other'].map((name) =>
  newToken(mintSecret(), 'alice', { scopes, expiresAt: null, name }, at),
);
const ids = tokens.map(({ id }) => id).sort();

interface Case {
  /** Two writes, sorted by their keys. */
  readonly writes: readonly Write[];
  /** The row that the first write locks. */
  readonly firstRow: string;
  /** The outcomes of the two batches, for each write. */
  readonly outcomes: readonly [Outcome, Outcome];
}

const cases: Readonly<Record<string, Case>> = {
  'idempotency keys': {
    writes: [createOnce(2n, 'a'), createOnce(1n, 'b')],
    firstRow: "idempotency_keys WHERE key = 'a'",
    outcomes: ['created', 'createdReplayed'],
  },
  tokens: {
    writes: ids.map((id): Write => ({ kind: 'revokeToken', id, at })),
    firstRow: `tokens WHERE id = '${ids[0]}'`,
    outcomes: ['done', 'done'],
  },
};

for (const [what, { writes, firstRow, outcomes }] of Object.entries(cases))
  test(`batches change the same ${what} in opposite orders → no deadlock`, async (t) => {
    const url = await postgres.freshUrl(t);
    await migratePostgres(url);
    const connections = new Connections(url, options);
    t.after(() => connections.close());
    await connections.query(createTokens(tokens));
    // Rows of failed creations of an earlier version: both batches wait for the first one, and may overwrite it.
    await execute(
      url,
      "INSERT INTO idempotency_keys SELECT 'alice', key, '', 'idTaken', 0 FROM unnest('{a,b}'::text[]) AS key",
    );
    const batches: Promise<readonly Outcome[]>[] = [];
    await connections.use((connection) =>
      inTransaction(connection, 'BEGIN', async () => {
        await connection.query({ text: `SELECT FROM ${firstRow} FOR UPDATE` });
        // The batch that waits first gets the row first. In another order, the next batch would have locked
        // the second row by then.
        for (const batch of [writes, writes.toReversed()]) {
          batches.push(commitBatch(connections, batch, 'allOwners'));
          await until(async () => (await rowsOf(url, WAITING)).length === batches.length);
        }
      }),
    );
    assert.deepEqual(
      await Promise.all(batches),
      outcomes.map((outcome) => [outcome, outcome]),
    );
  });
