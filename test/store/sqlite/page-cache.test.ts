import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { INT64_MAX } from '../../../src/plant.ts';
import { migrateSqlite } from '../../../src/store/sqlite/migrate.ts';
import { openReader } from '../../../src/store/sqlite/reader.ts';
import { freshFolder, sqlite } from '../../support/engines.ts';
import { usedHeap } from '../../support/process-resources.ts';
import { create, prepare, upTo } from '../../support/store-setup.ts';

test('lists of many different empty pages → the cached pages take a few megabytes', async (t) => {
  const file = join(await freshFolder(), 'plants.db');
  await migrateSqlite(file);
  const reader = await openReader(file);
  t.after(() => reader.close());
  const before = usedHeap();
  for (let from = 1n; from <= 60_000n; from += 1n)
    assert.equal(reader.listPlants('alice', { from, to: INT64_MAX }, upTo(20)).json, '[]');
  assert.ok(usedHeap() - before < 6 * 2 ** 20, `${usedHeap() - before} bytes`);
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
