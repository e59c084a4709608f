import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { commitBatch } from '../../../src/store/postgres/batch.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { isAcrossShards } from '../../../src/store/postgres/errors.ts';
import { migratePostgres } from '../../../src/store/postgres/migrate.ts';
import type { Write } from '../../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../../src/token.ts';
import { engines, execute, connections as options } from '../../support/engines.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';

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
  assert.deepEqual(verbs.sort(), ['INSERT', 'INSERT', 'SELECT']);
});

test('a migration changes what prepared statements return → they are prepared again, and batches go on together', async (t) => {
  assert.ok(postgres !== undefined);
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
  await store.write({ kind: 'createToken', token });
  const create = (owner: string, id: bigint) => store.write({ ...creation, owner, id, idempotency: null });
  const removeBoth = () =>
    Promise.all(['alice', 'bob'].map((owner) => store.write({ kind: 'deletePlant', owner, id: 1n })));
  await Promise.all([create('alice', 1n), create('bob', 1n)]);
  assert.deepEqual(await removeBoth(), ['deleted', 'deleted']);
  assert.deepEqual(await store.findToken(token.digest), token);

  await execute(
    url.href,
    'ALTER TABLE plants ALTER owner TYPE varchar; ALTER TABLE tokens ALTER name TYPE varchar',
  );
  sent.length = 0;
  await Promise.all([create('alice', 1n), create('bob', 1n)]);
  assert.deepEqual(await removeBoth(), ['deleted', 'deleted']);
  assert.deepEqual(await store.findToken(token.digest), token);
  assert.ok(sent.join('').includes('delete-plants\0'));
  assert.doesNotMatch(sent.join(''), /delete-plants-of-owner/);
});

test('0A000 is about shards where Citus says so, and not where PostgreSQL lacks a feature', async (t) => {
  assert.ok(postgres !== undefined);
  const url = await postgres.freshUrl(t);
  const unsupported = (message: string) => Object.assign(new Error(message), { code: '0A000' });
  assert.ok(isAcrossShards(unsupported('could not run distributed query with FOR UPDATE/SHARE commands')));
  const other = await execute(url, 'SELECT count(*) FROM pg_class FOR UPDATE').catch(
    (error: unknown) => error,
  );
  assert.ok(other instanceof Error && 'code' in other && other.code === '0A000');
  assert.ok(!isAcrossShards(other));
});
