import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { commitBatch } from '../../../src/store/postgres/batch.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { isAcrossShards } from '../../../src/store/postgres/errors.ts';
import { migratePostgres } from '../../../src/store/postgres/migrate.ts';
import type { Connection } from '../../../src/store/postgres/statements.ts';
import { StoreUnavailable } from '../../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../../src/token.ts';
import { execute, connections as options, postgres } from '../../support/engines.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';
import { create } from '../../support/store-setup.ts';

const creation = create(1n, { idempotency: { key: 'one', digest: Buffer.alloc(32) } });

/** Opens connections to a new store. */
async function openMigrated(t: TestContext): Promise<Connections> {
  const url = await postgres.freshUrl(t);
  await migratePostgres(url);
  const connections = new Connections(url, options);
  t.after(() => connections.close());
  return connections;
}

test('BEGIN and COMMIT are not prepared, so that they cannot fail alone', async (t) => {
  const connections = await openMigrated(t);
  const prepared = await connections.use(async (connection) => {
    assert.deepEqual(await commitBatch(connection, [creation], false), ['created']);
    return connection.query({ text: 'SELECT statement FROM pg_prepared_statements ORDER BY statement' });
  });
  const verbs = prepared.map(({ statement }) => String(statement).split(/\s/, 1)[0]);
  assert.deepEqual(verbs.sort(), ['INSERT', 'INSERT', 'SELECT']);
});

test('only BEGIN fails → a batch with an idempotency key stores neither the key nor the plant', async (t) => {
  const connections = await openMigrated(t);
  const failed = connections.use((connection) => {
    const failing: Connection = {
      query: (statement) =>
        connection.query(statement.text === 'BEGIN' ? { text: 'SELECT 1 / 0' } : statement),
    };
    return commitBatch(failing, [creation], false);
  });
  await assert.rejects(failed, StoreUnavailable);
  const text = 'SELECT key FROM idempotency_keys UNION ALL SELECT name FROM plants';
  assert.deepEqual(await connections.query({ text }), []);
});

test('a prepared statement is planned once, not at each call', async (t) => {
  const connections = await openMigrated(t);
  const plans = await connections.use(async (connection) => {
    for (const id of [1n, 2n, 3n])
      await commitBatch(connection, [{ ...creation, id, idempotency: null }], false);
    return connection.query({ text: 'SELECT custom_plans, generic_plans FROM pg_prepared_statements' });
  });
  assert.deepEqual(plans, [{ custom_plans: '0', generic_plans: '3' }]);
});

test('no statement is compiled to machine code, however large the tables are', async (t) => {
  const connections = await openMigrated(t);
  const [row] = await connections.query({ text: "SELECT current_setting('jit') AS jit" });
  assert.equal(row?.jit, 'off');
});

test('migration changes the columns of prepared statements → they are prepared again, in the same mode', async (t) => {
  const url = new URL(await postgres.freshUrl(t));
  const sent: string[] = [];
  const proxy = await startTcpProxy(t, Number(url.port), (bytes) => void sent.push(bytes.toString('latin1')));
  const store = await openStore(`postgres://postgres@127.0.0.1:${proxy.port}${url.pathname}`, {
    now: Date.now,
    connections: { ...options, poolSize: 2 },
    onFatal: assert.fail,
  });
  t.after(() => store.close());
  const token = newToken(mintSecret(), 'alice', { scopes, expiresAt: null, name: 'test' }, Date.now());
  const { digest, ...fields } = token;
  await store.write({ kind: 'createToken', token });
  const create = (owner: string, id: bigint) => store.write({ ...creation, owner, id, idempotency: null });
  const removeBoth = () =>
    Promise.all(['alice', 'bob'].map((owner) => store.write({ kind: 'deletePlant', owner, id: 1n })));
  await Promise.all([create('alice', 1n), create('bob', 1n)]);
  assert.deepEqual(await removeBoth(), ['deleted', 'deleted']);
  assert.deepEqual(await store.findToken(digest), fields);

  await execute(
    url.href,
    'ALTER TABLE plants ALTER owner TYPE varchar; ALTER TABLE tokens ALTER name TYPE varchar',
  );
  sent.length = 0;
  await Promise.all([create('alice', 1n), create('bob', 1n)]);
  assert.deepEqual(await removeBoth(), ['deleted', 'deleted']);
  assert.deepEqual(await store.findToken(digest), fields);
  assert.ok(sent.join('').includes('delete-plants\0'));
  assert.doesNotMatch(sent.join(''), /delete-plants-of-owner/);
});

test('0A000 means shards only when the message is from Citus', async (t) => {
  const url = await postgres.freshUrl(t);
  const unsupported = (message: string) => Object.assign(new Error(message), { code: '0A000' });
  assert.ok(isAcrossShards(unsupported('could not run distributed query with FOR UPDATE/SHARE commands')));
  const other = await execute(url, 'SELECT count(*) FROM pg_class FOR UPDATE').catch(
    (error: unknown) => error,
  );
  assert.ok(other instanceof Error && 'code' in other && other.code === '0A000');
  assert.ok(!isAcrossShards(other));
});
