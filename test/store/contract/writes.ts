import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  NothingStored,
  type Outcome,
  type Store,
  StoreUnavailable,
  type Write,
} from '../../../src/store/store.ts';
import { rowsOf, type TestEngine } from '../../support/engines.ts';
import {
  assertRejected,
  countOf,
  create,
  createOnce,
  EVERY_ID,
  namesOf,
  openOne,
  parsePlants,
  prepare,
  remove,
  upTo,
  writeAll,
} from '../../support/store-setup.ts';

export function testConcurrency(engine: TestEngine): void {
  test('writes of one id are executed in the order of their submission', async (t) => {
    const store = await openOne(t, engine);
    const ids = Array.from({ length: 100 }, (_, index) => BigInt(index));
    const writes = ids.flatMap((id) => [
      create(id, { name: 'first' }),
      create(id, { name: 'taken' }),
      remove(id),
      remove(id),
      create(id, { name: `last ${id}` }),
    ]);
    const outcomes = await writeAll(store, writes);
    const expected = ids.flatMap((): Outcome[] => ['created', 'idTaken', 'deleted', 'absent', 'created']);
    assert.deepEqual(outcomes, expected);
    assert.deepEqual(
      await namesOf(store),
      ids.map((id) => `last ${id}`),
    );
  });

  test('several writes of each kind to the plants of several owners → the first of each counts', async (t) => {
    const { url, open } = await prepare(t, engine);
    const { store } = await open();
    const owners = ['bob', 'alice', 'carol'];
    const each = (write: (owner: string) => Write): Write[] => owners.map(write);
    const writes = [
      ...each((owner) => createOnce(1n, 'a', `first of ${owner}`, owner)),
      ...each((owner) => create(1n, { owner, name: 'taken' })),
      ...each((owner) => createOnce(1n, 'b', 'taken', owner)),
      ...each((owner) => remove(2n, owner)),
      ...each((owner) => create(2n, { owner, name: `second of ${owner}` })),
      ...each((owner) => createOnce(2n, 'c', 'taken', owner)),
    ];
    const outcomes = ['created', 'idTaken', 'idTaken', 'absent', 'created', 'idTaken'] as const;
    assert.deepEqual(
      await writeAll(store, writes),
      outcomes.flatMap((outcome) => owners.map(() => outcome)),
    );
    for (const owner of owners)
      assert.deepEqual(await namesOf(store, owner), [`first of ${owner}`, `second of ${owner}`]);
    assert.deepEqual(
      await rowsOf(url, 'SELECT owner, key FROM idempotency_keys ORDER BY owner'),
      owners.toSorted().map((owner) => ({ owner, key: 'a' })),
    );
    const deletions = [...each((owner) => remove(1n, owner)), ...each((owner) => remove(1n, owner))];
    assert.deepEqual(
      await writeAll(store, deletions),
      ['deleted', 'absent'].flatMap((outcome) => owners.map(() => outcome)),
    );
  });

  test('2,000 creates of 1,500 ids → one creation per id, and that plant is listed', async (t) => {
    const store = await openOne(t, engine);
    const attempts = Array.from({ length: 2_000 }, (_, index) => ({
      id: BigInt(index % 1_500),
      name: `attempt ${index}`,
    }));
    const outcomes = await writeAll(
      store,
      attempts.map(({ id, name }) => create(id, { name })),
    );
    const winners = new Map<bigint, string>();
    for (const [index, { id, name }] of attempts.entries()) {
      if (outcomes[index] !== 'created') continue;
      assert.equal(winners.has(id), false, `two winners for ${id}`);
      winners.set(id, name);
    }
    assert.equal(countOf(outcomes, 'created'), 1_500);
    assert.equal(countOf(outcomes, 'idTaken'), 500);
    const page = await store.listPlants('alice', EVERY_ID, upTo(2_000));
    const byId = [...winners].sort(([a], [b]) => Number(a - b));
    assert.deepEqual(
      parsePlants(page),
      byId.map(([, name]) => ({ name })),
    );
  });

  test('an impossible write is rejected alone; the others succeed in order', async (t) => {
    const store = await openOne(t, engine);
    const before = Array.from({ length: 100 }, (_, index) => store.write(create(BigInt(index))));
    const tooLarge = store.write(create(2n ** 63n));
    const between = writeAll(store, [create(500n), remove(500n), create(500n), create(500n), remove(600n)]);
    const tooSmall = store.write(remove(-(2n ** 63n) - 1n));
    const after = Array.from({ length: 100 }, (_, index) => store.write(create(BigInt(1_000 + index))));
    await assertRejected(tooLarge, tooSmall);
    assert.deepEqual(await between, ['created', 'deleted', 'created', 'idTaken', 'absent']);
    assert.deepEqual(new Set(await Promise.all([...before, ...after])), new Set(['created']));
    assert.equal((await namesOf(store)).length, 201);
  });

  test('an impossible write without others is rejected', async (t) => {
    const store = await openOne(t, engine);
    await assertRejected(store.write(create(2n ** 63n)));
    assert.equal(await store.write(create(1n)), 'created');
    assert.deepEqual(await namesOf(store), ['plant 1']);
  });

  test('two stores on one URL write at the same time → one creation per id', async (t) => {
    const { open } = await prepare(t, engine);
    const [first, second] = [await open(), await open()];
    const ids = Array.from({ length: 300 }, (_, index) => BigInt(index));
    const [mine, theirs] = await Promise.all([
      writeAllWhenUnlocked(
        first.store,
        ids.map((id) => create(id, { name: `first ${id}` })),
      ),
      writeAllWhenUnlocked(
        second.store,
        [...ids].reverse().map((id) => create(id, { name: `second ${id}` })),
      ),
    ]);
    assert.equal(countOf(mine, 'created') + countOf(theirs, 'created'), ids.length);
    assert.equal(countOf(mine, 'idTaken') + countOf(theirs, 'idTaken'), ids.length);
    const winners = ids.map((id, index) => `${mine[index] === 'created' ? 'first' : 'second'} ${id}`);
    assert.deepEqual(await namesOf(first.store), winners);
    assert.deepEqual(await namesOf(second.store), winners);
  });
}

/** Repeats writes that found the store locked for seconds, as on a busy disk. */
function writeAllWhenUnlocked(store: Store, writes: readonly Write[]): Promise<Outcome[]> {
  const submit = (write: Write): Promise<Outcome> =>
    store.write(write).catch((error: unknown) => {
      if (error instanceof NothingStored) return submit(write);
      throw error;
    });
  return Promise.all(writes.map(submit));
}

export function testLife(engine: TestEngine): void {
  test('close commits earlier writes and rejects later ones', async (t) => {
    const { open } = await prepare(t, engine);
    const first = await open();
    const submitted = writeAll(
      first.store,
      Array.from({ length: 500 }, (_, index) => create(BigInt(index))),
    );
    const closed = first.close();
    await assert.rejects(first.store.write(create(1_000n)), StoreUnavailable);
    assert.equal(countOf(await submitted, 'created'), 500);
    await closed;
    await assert.rejects(first.store.write(create(1_001n)), StoreUnavailable);
    const { store } = await open();
    const names = await namesOf(store);
    assert.deepEqual([names.length, names.at(-1)], [500, 'plant 499']);
  });

  test('closing one store does not affect another on the same URL', async (t) => {
    const { open } = await prepare(t, engine);
    const [first, second] = [await open(), await open()];
    await first.store.write(create(1n));
    await first.close();
    assert.equal(await second.store.write(create(2n)), 'created');
    assert.deepEqual(await namesOf(second.store), ['plant 1', 'plant 2']);
  });

  test('two stores can be opened at the same time on a new URL', async (t) => {
    const { open } = await prepare(t, engine);
    const [first, second] = await Promise.all([open(), open()]);
    assert.equal(await first.store.write(create(1n)), 'created');
    assert.equal(await second.store.write(create(1n)), 'idTaken');
  });

  test('an error outside the store does not fail the store, and later writes succeed', async (t) => {
    const store = await openOne(t, engine);
    const fault = new Error('a plant without a name');
    const unreadable: Write = {
      ...createOnce(1n, 'one'),
      get name(): string {
        throw fault;
      },
    };
    await assert.rejects(store.write(unreadable), (error: unknown) => error === fault);
    assert.equal(await store.write(createOnce(1n, 'one')), 'created');
  });

  test('a store that answers can be pinged', async (t) => {
    const store = await openOne(t, engine);
    assert.equal(await store.ping(), undefined);
  });
}
