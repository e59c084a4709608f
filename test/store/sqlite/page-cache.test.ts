import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { INT64_MAX } from '../../../src/plant.ts';
import { openForWriting } from '../../../src/store/sqlite/connection.ts';
import { openSqlite } from '../../../src/store/sqlite/engine.ts';
import { migrateSqlite } from '../../../src/store/sqlite/migrate.ts';
import { openReader } from '../../../src/store/sqlite/reader.ts';
import { connections, freshFolder, sqlite } from '../../support/engines.ts';
import { usedHeap } from '../../support/process-resources.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';
import { create, EVERY_ID, prepare, upTo } from '../../support/store-setup.ts';

test('lists of many different empty pages → the cached pages take a few megabytes', async (t) => {
  const file = join(await freshFolder(), 'plants.db');
  await migrateSqlite(file);
  const reader = await openReader(file);
  t.after(() => reader.close());
  const before = usedHeap();
  for (let from = 1n; from <= 60_000n; from += 1n)
    assert.equal(reader.listPlants('alice', { from, to: INT64_MAX }, upTo(20)).json, '[]');
  assert.ok(usedHeap() - before < 8 * 2 ** 20, `${usedHeap() - before} bytes`);
});

test('page of a few kilobytes → read once; longer page → not cached', async (t) => {
  const { url, open } = await prepare(t, sqlite);
  const { store, close } = await open();
  for (const [id, length] of [
    [1n, 10_000],
    [2n, 20_000],
  ] as const)
    await store.write(create(id, { name: 'x'.repeat(length) }));
  await close();
  const reader = await openReader(url.slice('sqlite:'.length));
  t.after(() => reader.close());
  const read = (id: bigint) => reader.listPlants('alice', { from: id, to: id }, upTo(1));
  assert.equal(read(1n), read(1n));
  assert.notEqual(read(2n), read(2n));
  assert.deepEqual(read(2n), read(2n));
});

test('commit of another process between two polls of one event-loop iteration → the next read shows it', async (t) => {
  const file = join(await freshFolder(), 'plants.db');
  await migrateSqlite(file);
  const reader = await openReader(file);
  t.after(() => reader.close());
  const inserts = openForWriting(file);
  t.after(() => inserts.close());
  // libuv takes up to 1,024 events with each poll. If it got as many, it polls again in the same iteration.
  const pairs = await connectPairs(t, 1_100);
  const reads: { readonly loopCount: number; readonly json: string }[] = [];
  let pollEvents: number | undefined;
  let received = 0;
  const all = Promise.withResolvers<void>();
  for (const { accepted } of pairs)
    accepted.on('data', () => {
      const { loopCount, events } = performance.nodeTiming.uvMetricsInfo;
      if (events !== pollEvents) {
        if (reads.length === 1)
          inserts.exec("INSERT INTO plants (owner, id, name) VALUES ('alice', 7, 'Fern')");
        reads.push({ loopCount, json: reader.listPlants('alice', EVERY_ID, upTo(20)).json });
        pollEvents = events;
      }
      received += 1;
      if (received === pairs.length) all.resolve();
    });
  for (const { client } of pairs) client.write('x');
  await all.promise;
  const [first, second] = reads;
  assert.equal(first?.loopCount, second?.loopCount);
  assert.deepEqual([first?.json, second?.json], ['[]', '[{"name":"Fern"}]']);
});

test('commit of this process, and a list read meanwhile in the same poll → the next list shows the write', async (t) => {
  const file = join(await freshFolder(), 'plants.db');
  const engine = await openSqlite(file, { connections, now: Date.now, onFatal: assert.fail });
  t.after(() => engine.close());
  const list = async () => (await engine.listPlants('alice', EVERY_ID, upTo(20))).json;
  // As if all of this was in one poll of the event loop.
  const { nodeTiming } = performance;
  const real = Object.getOwnPropertyDescriptor(nodeTiming, 'uvMetricsInfo') ?? {};
  Object.defineProperty(nodeTiming, 'uvMetricsInfo', { configurable: true, value: nodeTiming.uvMetricsInfo });
  t.after(() => Object.defineProperty(nodeTiming, 'uvMetricsInfo', real));
  t.mock.timers.enable({ apis: ['setImmediate'] });
  const committing = engine.commit([create(7n, { name: 'Fern' })]);
  await list();
  assert.deepEqual(await committing, ['created']);
  assert.equal(await list(), '[{"name":"Fern"}]');
});

interface Pair {
  readonly client: Socket;
  readonly accepted: Socket;
}

async function connectPairs(t: TestContext, count: number): Promise<readonly Pair[]> {
  const server = createServer();
  const port = await listenOnFreePort(server);
  const pairs: Pair[] = [];
  t.after(() => {
    for (const { client, accepted } of pairs) for (const socket of [client, accepted]) socket.destroy();
    server.close();
  });
  while (pairs.length < count) {
    const client = connect(port, '127.0.0.1');
    const [accepted] = await once(server, 'connection');
    pairs.push({ client, accepted });
  }
  return pairs;
}
