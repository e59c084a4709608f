import assert from 'node:assert/strict';
import { test } from 'node:test';
import { INT64_MAX, INT64_MIN } from '../../../src/plant.ts';
import { migrateStore, openBulk, openStore } from '../../../src/store/open-engine.ts';
import { createCommit } from '../../../src/store/postgres/commit.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { deleteExpiredKeys } from '../../../src/store/postgres/expired-keys.ts';
import { type Engine, type Store, StoreUnavailable } from '../../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../../src/token.ts';
import { connections as options } from '../../support/engines.ts';
import { startMovingPooler } from '../../support/servers/moving-pooler.ts';
import { startPair } from '../../support/servers/postgres-server.ts';
import { create, parsePlants, upTo } from '../../support/store-setup.ts';

test('a standby may lack acknowledged writes → it is never read, even as the only host', async (t) => {
  const { standby } = await startPair(t, { prepare: migrateStore });

  await assert.rejects(
    openStore(standby.url(), { now: Date.now, connections: options, onFatal: assert.fail }),
    {
      name: 'StoreNotOpened',
      message: /the host is not the primary: it is a standby, or its restore is not finished$/,
    },
  );
  // Like a service whose host name later resolves to another server.
  const connections = new Connections(standby.url(), options);
  t.after(() => connections.close());
  const list = connections.query({ text: 'SELECT * FROM plants' });
  await assert.rejects(list, StoreUnavailable);

  await standby.sql('SELECT pg_promote()');
  assert.deepEqual(await connections.query({ text: 'SELECT * FROM plants' }), []);
});

type Read = Exclude<keyof Engine, 'commit' | 'load' | 'close'>;

const ALL = { from: INT64_MIN, to: INT64_MAX };

/** All reads of the service; the compiler reports a missing one. Each has a call with a result and one without. */
const READS: Readonly<Record<Read, readonly ((store: Store, digest: Uint8Array) => Promise<unknown>)[]>> = {
  listPlants: [
    (store) => store.listPlants('alice', ALL, upTo(10)),
    (store) => store.listPlants('zoe', ALL, upTo(10)),
  ],
  readLargePlant: [
    (store) => store.readLargePlant('alice', ALL),
    (store) => store.readLargePlant('zoe', ALL),
  ],
  findToken: [
    (store, digest) => store.findToken(digest),
    (store) => store.findToken(new Uint8Array([1, 2, 3])),
  ],
  findTokenById: [(store) => store.findTokenById('a'.repeat(12))],
  hasValidTokens: [(store) => store.hasValidTokens(0)],
  isEmpty: [(store) => store.isEmpty()],
  ping: [(store) => store.ping()],
};

test('pooler moves the sessions to a standby → every read is rejected, even with an empty result', async (t) => {
  const { primary, standby } = await startPair(t, { prepare: migrateStore });
  const pooler = await startMovingPooler(t, primary.port);
  const url = `postgres://postgres@127.0.0.1:${pooler.port}/postgres`;
  const store = await openStore(url, {
    now: Date.now,
    connections: { ...options, prepare: false, poolSize: 1 },
    onFatal: assert.fail,
  });
  t.after(() => store.close());
  const token = newToken(mintSecret(), 'alice', { scopes, expiresAt: null, name: 'test' }, Date.now());
  await store.write({ kind: 'createToken', token });
  await store.write(create(1n));

  const reads = Object.entries(READS).flatMap(([name, calls]) => calls.map((call) => ({ name, call })));
  for (const { name, call } of reads) {
    await pooler.moveTo(primary.port);
    await call(store, token.digest);
    await pooler.moveTo(standby.port);
    await assert.rejects(call(store, token.digest), StoreUnavailable, `${name} was answered by a standby`);
  }
  await pooler.moveTo(primary.port);
  const bulk = await openBulk(url, options);
  t.after(() => bulk.close());
  const count = () => bulk.read(['plants'], (contents) => contents.countPlants('alice'));
  assert.equal(await count(), 1);
  await pooler.moveTo(standby.port);
  await assert.rejects(count(), StoreUnavailable);
  await assert.rejects(bulk.inspect(), StoreUnavailable);

  await pooler.moveTo(primary.port);
  assert.equal(parsePlants(await store.listPlants('alice', ALL, upTo(10))).length, 1);
  assert.equal(await store.findToken(new Uint8Array([1, 2, 3])), undefined);
  const { digest, ...fields } = token;
  assert.deepEqual(await store.findToken(digest), fields);
});

test('pooler moves the sessions to a standby → the reads of a deletion of keys and of a suspicious commit are rejected', async (t) => {
  const { primary, standby } = await startPair(t, { prepare: migrateStore });
  const pooler = await startMovingPooler(t, primary.port);
  const url = `postgres://postgres@127.0.0.1:${pooler.port}/postgres`;
  const oneSession = { ...options, prepare: false, poolSize: 1 };
  const connections = new Connections(url, oneSession);
  t.after(() => connections.close());
  const commit = createCommit(connections, oneSession, (work) => work(false));
  const onStandby = async (work: () => Promise<unknown>, message: RegExp): Promise<void> => {
    await pooler.moveTo(primary.port);
    await connections.read({ text: 'SELECT 1' });
    await pooler.moveTo(standby.port);
    await assert.rejects(work, { message });
  };

  await onStandby(() => deleteExpiredKeys(connections, 0, true), /not the primary/);
  await onStandby(() => commit([create(1n)]), /read-only/);
  await onStandby(() => commit([create(1n)]), /read-only/);
  // After two failures, a commit first counts those that wait for a standby.
  await onStandby(() => commit([create(1n)]), /not the primary/);
  await pooler.moveTo(primary.port);
  assert.deepEqual(await commit([create(1n)]), ['created']);
});
