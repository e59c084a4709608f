import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openBulk } from '../../../src/store/open-engine.ts';
import { KEY_DELETION_AGE_MS, KEY_LIFETIME_MS } from '../../../src/store/store.ts';
import { ageKeys, connections, execute, type TestEngine } from '../../support/engines.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import {
  assertRejected,
  countOf,
  create,
  createAll,
  createOnce,
  failTest,
  namesOf,
  openOne,
  prepare,
  remove,
  writeAll,
} from '../../support/store-setup.ts';

const HOUR_MS = 3_600_000;

export function testIdempotency(engine: TestEngine): void {
  test('a used key repeats its first outcome, and creates nothing', async (t) => {
    const store = await openOne(t, engine);
    assert.equal(await store.write(createOnce(1n, 'key')), 'created');
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    await store.write(remove(1n));
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    assert.deepEqual(await namesOf(store), []);
  });

  test('a failed creation leaves no key: the retry is executed again', async (t) => {
    const { url, open } = await prepare(t, engine);
    const { store } = await open();
    await store.write(create(1n));
    assert.equal(await store.write(createOnce(1n, 'key')), 'idTaken');
    assert.equal(await countKeys(url), 0);
    assert.equal(await store.write(createOnce(1n, 'key')), 'idTaken');
    await store.write(remove(1n));
    assert.equal(await store.write(createOnce(1n, 'key')), 'created');
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    assert.equal(await countKeys(url), 1);
    assert.deepEqual(await namesOf(store), ['a plant']);
  });

  test('the key of a failed creation is free for another plant', async (t) => {
    const store = await openOne(t, engine);
    await store.write(create(1n));
    assert.equal(await store.write(createOnce(1n, 'key')), 'idTaken');
    assert.equal(await store.write(createOnce(2n, 'key')), 'created');
    assert.equal(await store.write(createOnce(1n, 'key')), 'keyReused');
  });

  test('creations submitted together: those that fail leave no key', async (t) => {
    const { url, open } = await prepare(t, engine);
    const { store } = await open();
    await createAll(store, [1n, 2n, 3n]);
    const writes = [1n, 2n, 3n, 4n, 5n].map((id) => createOnce(id, `key ${id}`, 'a plant'));
    const others = [2n, 6n].map((id) => createOnce(id, `key ${id}`, 'of bob', 'bob'));
    const outcomes = await writeAll(store, [...writes, ...others]);
    assert.deepEqual(outcomes, [
      'idTaken',
      'idTaken',
      'idTaken',
      ...Array.from({ length: 4 }, () => 'created'),
    ]);
    assert.equal(await countKeys(url), 4);
  });

  test('a key that an earlier version kept for a failed creation counts as absent, and is replaced', async (t) => {
    const { url, open } = await prepare(t, engine);
    const { store } = await open();
    await store.write(createOnce(1n, 'key'));
    await execute(url, "UPDATE idempotency_keys SET outcome = 'idTaken'");
    assert.equal(await store.write(createOnce(1n, 'key')), 'idTaken');
    await store.write(remove(1n));
    assert.equal(await store.write(createOnce(1n, 'key', 'another plant')), 'created');
    assert.equal(await store.write(createOnce(1n, 'key', 'another plant')), 'createdReplayed');
    assert.equal(await countKeys(url), 1);
  });

  test('many failing creates with one key on two stores → all fail, and no key is left', async (t) => {
    const { url, open } = await prepare(t, engine);
    const [first, second] = [await open(), await open()];
    await first.store.write(create(1n));
    const same = Array.from({ length: 100 }, () => createOnce(1n, 'key'));
    const outcomes = (await Promise.all([writeAll(first.store, same), writeAll(second.store, same)])).flat();
    assert.equal(countOf(outcomes, 'idTaken'), 200);
    assert.equal(await countKeys(url), 0);
  });

  test('key used for another plant → keyReused, and nothing changes', async (t) => {
    const store = await openOne(t, engine);
    await store.write(createOnce(1n, 'key'));
    assert.equal(await store.write(createOnce(1n, 'key', 'another plant')), 'keyReused');
    assert.equal(await store.write(createOnce(2n, 'key')), 'keyReused');
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    assert.deepEqual(await namesOf(store), ['a plant']);
  });

  test('keys differ by owner and by every character', async (t) => {
    const store = await openOne(t, engine);
    assert.equal(await store.write(createOnce(1n, 'key')), 'created');
    assert.equal(await store.write(createOnce(1n, 'key', 'of bob', 'bob')), 'created');
    const others = ['KEY', 'key2', 'k'.repeat(255), `${'k'.repeat(254)}l`, "'%_\\~"];
    for (const [index, key] of others.entries()) {
      assert.equal(await store.write(createOnce(BigInt(10 + index), key)), 'created');
    }
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    assert.equal(await store.write(createOnce(1n, 'key', 'of bob', 'bob')), 'createdReplayed');
  });

  test('a create without a key ignores keys', async (t) => {
    const store = await openOne(t, engine);
    await store.write(createOnce(1n, 'key'));
    assert.equal(await store.write(create(1n, { name: 'a plant' })), 'idTaken');
  });

  test('many creates with one key together → one creates, the others are replays', async (t) => {
    const { open } = await prepare(t, engine);
    const [first, second] = [await open(), await open()];
    const same = Array.from({ length: 200 }, () => createOnce(1n, 'key'));
    const both = await Promise.all([writeAll(first.store, same), writeAll(second.store, same)]);
    const outcomes = both.flat();
    assert.equal(countOf(outcomes, 'created'), 1);
    assert.equal(countOf(outcomes, 'createdReplayed'), 399);
    assert.deepEqual(await namesOf(first.store), ['a plant']);
  });

  test('many plants with one key together → one is created, the others are keyReused', async (t) => {
    const store = await openOne(t, engine);
    const different = Array.from({ length: 200 }, (_, index) =>
      createOnce(BigInt(index), 'key', `plant ${index}`),
    );
    const outcomes = await writeAll(store, different);
    assert.equal(countOf(outcomes, 'created'), 1);
    assert.equal(countOf(outcomes, 'keyReused'), 199);
    assert.deepEqual(await namesOf(store), [`plant ${outcomes.indexOf('created')}`]);
  });

  test('a rejected write leaves its key unused', async (t) => {
    const store = await openOne(t, engine);
    const rejected = store.write(createOnce(2n ** 63n, 'key'));
    const neighbour = store.write(createOnce(2n, 'neighbour'));
    await assertRejected(rejected);
    assert.equal(await neighbour, 'created');
    assert.equal(await store.write(createOnce(1n, 'key')), 'created');
    assert.equal(await store.write(createOnce(2n, 'neighbour')), 'createdReplayed');
  });
}

export function testIdempotencyInTime(engine: TestEngine): void {
  test('a key expires 24 hours after its first use', async (t) => {
    const { url, open } = await prepare(t, engine);
    const { store } = await open();
    await store.write(createOnce(1n, 'key'));
    await ageKeys(url, 23 * HOUR_MS);
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    assert.equal(await store.write(createOnce(2n, 'key')), 'keyReused');
    await ageKeys(url, HOUR_MS - PATIENCE_MS);
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    await ageKeys(url, PATIENCE_MS);
    assert.equal(await store.write(createOnce(2n, 'key', 'of the next day')), 'created');
    assert.equal(await store.write(createOnce(1n, 'key')), 'keyReused');
    await ageKeys(url, KEY_LIFETIME_MS - PATIENCE_MS);
    assert.equal(await store.write(createOnce(2n, 'key', 'of the next day')), 'createdReplayed');
    assert.deepEqual(await namesOf(store), ['a plant', 'of the next day']);
  });

  test('after 24 hours the same plant is a new creation', async (t) => {
    const { url, open } = await prepare(t, engine);
    const { store } = await open();
    await store.write(createOnce(1n, 'key'));
    await ageKeys(url, KEY_LIFETIME_MS);
    assert.equal(await store.write(createOnce(1n, 'key')), 'idTaken');
    assert.equal(await store.write(createOnce(2n, 'key')), 'created');
  });

  test('keys survive closing and opening', async (t) => {
    const { url, open } = await prepare(t, engine);
    const before = await open();
    await before.store.write(createOnce(1n, 'created'));
    await before.close();
    await ageKeys(url, KEY_LIFETIME_MS - PATIENCE_MS);
    const { store } = await open();
    assert.equal(await store.write(createOnce(1n, 'created')), 'createdReplayed');
    assert.equal(await store.write(createOnce(3n, 'created')), 'keyReused');
    await ageKeys(url, PATIENCE_MS);
    assert.equal(await store.write(createOnce(3n, 'created')), 'created');
  });

  test('any number of keys is deleted within a minute, a day after their expiry', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const { url, open } = await prepare(t, engine, { keyDeletion: { onFailure: failTest } });
    const { store } = await open();
    await writeAll(
      store,
      Array.from({ length: 4_500 }, (_, id) => createOnce(BigInt(id), `key ${id}`)),
    );
    await ageKeys(url, PATIENCE_MS);
    await store.write(createOnce(-1n, 'younger'));
    assert.equal(await countKeys(url), 4_501);
    await ageKeys(url, KEY_DELETION_AGE_MS - PATIENCE_MS);
    // A deletion that still runs skips a tick.
    while ((await countKeys(url)) > 1) {
      t.mock.timers.tick(60_000);
      assert.equal(await store.write(remove(-2n)), 'absent');
    }
    await ageKeys(url, PATIENCE_MS);
    // A deletion that still runs skips a tick.
    while ((await countKeys(url)) > 0) {
      t.mock.timers.tick(60_000);
      assert.equal(await store.write(remove(-2n)), 'absent');
    }
  });

  test('a clock that is 25 hours fast for some minutes deletes no valid key', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const { url, clock, open } = await prepare(t, engine, { keyDeletion: { onFailure: failTest } });
    const { store } = await open();
    await store.write(createOnce(1n, 'expired'));
    await ageKeys(url, KEY_DELETION_AGE_MS);
    await store.write(createOnce(2n, 'valid'));
    await store.write(remove(2n));
    clock.now += 25 * HOUR_MS;
    // A deletion that still runs skips a tick.
    while ((await countKeys(url)) > 1) {
      t.mock.timers.tick(60_000);
      assert.equal(await store.write(remove(-1n)), 'absent');
    }
    clock.now -= 25 * HOUR_MS;
    assert.equal(await store.write(createOnce(2n, 'valid')), 'createdReplayed');
  });

  test('a store that is not asked to delete keys, as that of a command, keeps them', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const { url, open } = await prepare(t, engine);
    const { store, close } = await open();
    await store.write(createOnce(1n, 'key'));
    await close();
    await ageKeys(url, 10 * KEY_DELETION_AGE_MS);
    const command = await open();
    t.mock.timers.tick(60_000);
    assert.equal(await command.store.write(remove(-1n)), 'absent');
    await command.close();
    assert.equal(await countKeys(url), 1);
  });

  test('keys cannot be deleted → reported, and retried every minute', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const failure = Promise.withResolvers<unknown>();
    const { url, open } = await prepare(t, engine, { keyDeletion: { onFailure: failure.resolve } });
    const { store } = await open();
    await store.write(createOnce(1n, 'key'));
    await ageKeys(url, KEY_DELETION_AGE_MS);
    await execute(url, 'ALTER TABLE idempotency_keys RENAME TO elsewhere');
    t.mock.timers.tick(60_000);
    assert.match(String(await failure.promise), /idempotency_keys/);
    await execute(url, 'ALTER TABLE elsewhere RENAME TO idempotency_keys');
    // A deletion that still runs skips a tick.
    while ((await countKeys(url)) > 0) {
      t.mock.timers.tick(60_000);
      assert.equal(await store.write(remove(-1n)), 'absent');
    }
    assert.equal(await countKeys(url), 0);
  });
}

async function countKeys(url: string): Promise<number> {
  const bulk = await openBulk(url, connections);
  try {
    return await bulk.read(['keys'], async ({ keys }) => {
      let count = 0;
      for await (const page of keys()) count += page.length;
      return count;
    });
  } finally {
    await bulk.close();
  }
}
