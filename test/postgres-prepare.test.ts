import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commitBatch } from '../src/store/postgres-batch.ts';
import { Connections } from '../src/store/postgres-connections.ts';
import { migratePostgres } from '../src/store/postgres-migrate.ts';
import type { Write } from '../src/store.ts';
import { engines, connections as options } from './engines.ts';

const postgres = engines.find(({ name }) => name === 'postgres');

const creation: Write = {
  kind: 'createPlant',
  owner: 'alice',
  id: 1n,
  name: 'Alder',
  tag: null,
  idempotency: { key: 'one', digest: Buffer.alloc(32) },
};

test('what begins and ends a transaction is not prepared, so that it cannot fail where the rest goes on', async (t) => {
  assert.ok(postgres !== undefined);
  const url = await postgres.freshUrl(t);
  await migratePostgres(url);
  const connections = new Connections(url, options);
  t.after(() => connections.close());
  const prepared = await connections.use(async (connection) => {
    assert.deepEqual(await commitBatch(connection, [creation], { now: Date.now(), perOwner: false }), [
      'created',
    ]);
    return connection.query({ text: 'SELECT statement FROM pg_prepared_statements ORDER BY statement' });
  });
  const verbs = prepared.map(({ statement }) => String(statement).split(/\s/, 1)[0]);
  assert.deepEqual(verbs.sort(), ['INSERT', 'INSERT', 'SELECT', 'UPDATE']);
});
