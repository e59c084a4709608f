import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import {
  createGroupCommit,
  type GroupCommitOptions,
  OWNER_CHARACTERS,
} from '../../src/store/group-commit.ts';
import { lockKeys } from '../../src/store/postgres/batch.ts';
import {
  type LockKey,
  NothingStored,
  type Outcome,
  StatementRejected,
  StoreOverloaded,
  StoreUnavailable,
  type Write,
} from '../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../src/token.ts';
import { create as creation } from '../support/store-setup.ts';

/** A pending batch; the test ends it. */
interface Batch {
  readonly ids: readonly number[];
  /** Resolves; the outcome of each write contains its id, so that outcomes cannot be confused. */
  succeed(): void;
  fail(error: Error): void;
}

function remove(id: number): Write {
  return { kind: 'deletePlant', owner: 'alice', id: BigInt(id) };
}

function idOf(write: Write): number {
  return 'id' in write ? Number(write.id) : Number.NaN;
}

function outcomeOf(id: number): Outcome {
  return id % 2 === 0 ? 'deleted' : 'absent';
}

/** A group commit whose batches wait for the test to end them. */
function createHeld(limits: Partial<Omit<GroupCommitOptions, 'commit'>> = {}) {
  const begun: Batch[] = [];
  const group = createGroupCommit({
    maxBatch: 100,
    maxInFlight: 1,
    maxWaiting: 1_000,
    ...limits,
    commit: (writes) => {
      const ids = writes.map(idOf);
      const { promise, resolve, reject } = Promise.withResolvers<readonly Outcome[]>();
      begun.push({ ids, succeed: () => resolve(ids.map(outcomeOf)), fail: reject });
      return promise;
    },
  });
  return {
    group,
    begun,
    write: (...ids: readonly number[]) => ids.map((id) => group.write(remove(id))),
    /** The ids of the batches, after all that can start have started. */
    idsBegun: async (): Promise<readonly (readonly number[])[]> => {
      await turns();
      return begun.map(({ ids }) => ids);
    },
  };
}

/** A group commit whose engine rejects batches with certain ids. */
function createRejecting(poison: (id: number) => Error | undefined) {
  const batches: (readonly number[])[] = [];
  let underWay = 0;
  const group = createGroupCommit({
    maxBatch: 100,
    maxInFlight: 1,
    maxWaiting: 1_000,
    commit: async (writes) => {
      const ids = writes.map(idOf);
      batches.push(ids);
      underWay += 1;
      assert.equal(underWay, 1, 'one batch at a time');
      await setImmediate();
      underWay -= 1;
      for (const id of ids) {
        const error = poison(id);
        if (error !== undefined) throw error;
      }
      return ids.map(outcomeOf);
    },
  });
  return { batches, write: (...ids: readonly number[]) => ids.map((id) => group.write(remove(id))) };
}

/** Enough event-loop iterations for all pending callbacks. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await setImmediate();
}

function at(batches: readonly Batch[], index: number): Batch {
  const batch = batches[index];
  assert.ok(batch !== undefined, `batch ${index} has begun`);
  return batch;
}

async function assertRejected(
  promises: readonly Promise<unknown>[],
  expected: Error | (new (message: string) => Error),
): Promise<void> {
  assert.ok(promises.length > 0);
  await Promise.all(promises.map((promise) => assert.rejects(promise, expected)));
}

/** The outcomes or errors of writes. Call it before they end. */
async function statusesOf(promises: readonly Promise<unknown>[]): Promise<readonly string[]> {
  return (await Promise.allSettled(promises)).map(({ status }) => status);
}

async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  const settle = (): void => {
    settled = true;
  };
  promise.then(settle, settle);
  await turns();
  return settled;
}

test('batches in flight → load has the age of the oldest, and 0 without any', async () => {
  const { group, begun, write, idsBegun } = createHeld({ maxInFlight: 2 });
  const age = (): number => group.load().oldestBatchMs;
  assert.equal(age(), 0);
  const writes = write(1);
  await idsBegun();
  const between = performance.now();
  writes.push(...write(2));
  await idsBegun();
  const passed = performance.now() - between;
  assert.ok(age() > passed, 'the age of the first');
  at(begun, 0).succeed();
  await writes[0];
  await turns();
  assert.ok(age() > 0 && age() <= performance.now() - between, 'the age of the second');
  at(begun, 1).succeed();
  await writes[1];
  await turns();
  assert.equal(age(), 0);
});

describe('collecting', () => {
  test('writes of an event-loop iteration share a batch, in their order', async () => {
    const { begun, write, idsBegun } = createHeld();
    const writes = write(3, 1, 2);
    assert.deepEqual(await idsBegun(), [[3, 1, 2]]);
    at(begun, 0).succeed();
    assert.deepEqual(await Promise.all(writes), ['absent', 'absent', 'deleted']);
  });

  test('writes of the next event-loop iteration join the batch', async () => {
    const { write, begun, idsBegun } = createHeld();
    const all = write(1);
    await setImmediate();
    assert.equal(begun.length, 0);
    all.push(...write(2));
    assert.deepEqual(await idsBegun(), [[1, 2]]);
    at(begun, 0).succeed();
    await Promise.all(all);
  });

  test('writes of the iteration in which a batch starts wait for those of the next one', async () => {
    const { write, begun, idsBegun } = createHeld({ maxInFlight: 2 });
    const all = write(1);
    await setImmediate();
    all.push(...write(2));
    await setImmediate();
    assert.equal(begun.length, 1);
    all.push(...write(3));
    await setImmediate();
    assert.equal(begun.length, 1);
    all.push(...write(4));
    assert.deepEqual(await idsBegun(), [
      [1, 2],
      [3, 4],
    ]);
    for (const batch of begun) batch.succeed();
    await Promise.all(all);
  });

  test('a single write does not wait for others', async () => {
    const { begun, write, idsBegun } = createHeld();
    const [alone] = write(2);
    assert.deepEqual(await idsBegun(), [[2]]);
    at(begun, 0).succeed();
    assert.equal(await alone, 'deleted');
  });

  test('writes that arrive during a batch are collected for the next one', async () => {
    const { begun, write, idsBegun } = createHeld();
    const first = write(1);
    await idsBegun();
    const next = write(2, 3);
    await turns();
    next.push(...write(4));
    assert.deepEqual(await idsBegun(), [[1]]);
    at(begun, 0).succeed();
    await Promise.all(first);
    assert.deepEqual(await idsBegun(), [[1], [2, 3, 4]]);
    at(begun, 1).succeed();
    assert.deepEqual(await Promise.all(next), ['deleted', 'absent', 'deleted']);
  });

  test('a batch starts after a time without writes', async () => {
    const { begun, write, idsBegun } = createHeld();
    for (const id of [0, 1, 2]) {
      const writes = write(id);
      await idsBegun();
      at(begun, id).succeed();
      await Promise.all(writes);
    }
    assert.deepEqual(await idsBegun(), [[0], [1], [2]]);
  });

  test('no outcome is returned before the end of its batch', async () => {
    const { begun, write, idsBegun } = createHeld();
    const [first] = write(1);
    assert.ok(first !== undefined);
    await idsBegun();
    assert.equal(await isSettled(first), false);
    at(begun, 0).succeed();
    assert.equal(await isSettled(first), true);
  });
});

describe('limits', () => {
  test('a batch has up to maxBatch writes; the rest follow in order', async () => {
    const { begun, write, idsBegun } = createHeld({ maxBatch: 2 });
    const writes = write(1, 2, 3, 4, 5);
    for (const index of [0, 1, 2]) {
      await idsBegun();
      at(begun, index).succeed();
    }
    await Promise.all(writes);
    assert.deepEqual(await idsBegun(), [[1, 2], [3, 4], [5]]);
  });

  test("an owner has much text in a batch → the owner's next writes wait, those of others do not", async () => {
    const batches: string[][] = [];
    const held = Promise.withResolvers<void>();
    const group = createGroupCommit({
      maxInFlight: 1,
      commit: async (writes) => {
        batches.push(writes.map((write) => ('owner' in write ? write.owner : '')));
        await held.promise;
        return writes.map(() => 'created');
      },
    });
    const text = 'x'.repeat(OWNER_CHARACTERS / 2);
    const large = (id: bigint): Write => creation(id, { owner: 'alice', name: text });
    const small = (owner: string, id: bigint): Write => creation(id, { owner, name: 'Alder' });
    const writes = [
      large(1n),
      large(2n),
      small('alice', 3n),
      small('bob', 4n),
      large(5n),
      small('carol', 6n),
    ];
    const outcomes = writes.map((write) => group.write(write));
    held.resolve();
    await Promise.all(outcomes);
    assert.deepEqual(batches, [
      ['alice', 'alice', 'bob', 'carol'],
      ['alice', 'alice'],
    ]);
  });

  test('maxInFlight 1: one batch at a time', async () => {
    const { begun, write, idsBegun } = createHeld({ maxBatch: 1 });
    const writes = write(1, 2, 3);
    assert.deepEqual(await idsBegun(), [[1]]);
    at(begun, 0).succeed();
    assert.deepEqual(await idsBegun(), [[1], [2]]);
    at(begun, 1).succeed();
    assert.deepEqual(await idsBegun(), [[1], [2], [3]]);
    at(begun, 2).succeed();
    await Promise.all(writes);
  });

  test('maxInFlight 3: up to three batches at a time, and another when any of them ends', async () => {
    const { begun, write, idsBegun } = createHeld({ maxBatch: 1, maxInFlight: 3 });
    const statuses = statusesOf(write(1, 2, 3, 4, 5));
    assert.deepEqual(await idsBegun(), [[1], [2], [3]]);
    at(begun, 1).succeed();
    assert.deepEqual(await idsBegun(), [[1], [2], [3], [4]]);
    at(begun, 3).fail(new Error('lost'));
    assert.deepEqual(await idsBegun(), [[1], [2], [3], [4], [5]]);
    for (const index of [4, 0, 2]) at(begun, index).succeed();
    assert.deepEqual(await statuses, ['fulfilled', 'fulfilled', 'fulfilled', 'rejected', 'fulfilled']);
  });

  test('more than maxWaiting writes → the new one is rejected; the queued ones are executed', async () => {
    const { group, begun, write, idsBegun } = createHeld({ maxWaiting: 3 });
    const first = write(0);
    await idsBegun();
    const waiting = write(2, 4, 6);
    await assertRejected(write(7, 8), StoreOverloaded);
    await assert.rejects(group.write(remove(9)), /3 writes/);
    const { writesWaiting, writesInFlight } = group.load();
    assert.deepEqual([writesWaiting, writesInFlight], [3, 1]);
    at(begun, 0).succeed();
    assert.deepEqual(await Promise.all(first), ['deleted']);
    assert.deepEqual(await idsBegun(), [[0], [2, 4, 6]]);
    const later = write(8, 10, 12);
    await assertRejected(write(13), StoreOverloaded);
    at(begun, 1).succeed();
    assert.deepEqual(await Promise.all(waiting), ['deleted', 'deleted', 'deleted']);
    assert.deepEqual(await idsBegun(), [[0], [2, 4, 6], [8, 10, 12]]);
    at(begun, 2).succeed();
    assert.deepEqual(await Promise.all(later), ['deleted', 'deleted', 'deleted']);
    assert.deepEqual(group.load(), { writesWaiting: 0, writesInFlight: 0, oldestBatchMs: 0 });
  });

  test('queued for maxWaitMs → rejected, and never executed; younger ones stay queued', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const { begun, write, idsBegun } = createHeld({ maxWaitMs: 100 });
    const first = write(0);
    await idsBegun();
    const [late = assert.fail()] = write(2);
    t.mock.timers.tick(50);
    const younger = write(4);
    t.mock.timers.tick(50);
    assert.equal(await isSettled(late), false, 'rejected before its time');
    t.mock.timers.tick(25);
    await assert.rejects(late, /100 ms/);
    at(begun, 0).succeed();
    assert.deepEqual(await idsBegun(), [[0], [4]]);
    at(begun, 1).succeed();
    assert.deepEqual(await Promise.all([...first, ...younger]), ['deleted', 'deleted']);
  });
});

test('process suspended for longer than maxWaitMs → queued writes stay queued', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { begun, write, idsBegun } = createHeld({ maxWaitMs: 100 });
  const writes = write(0);
  await idsBegun();
  writes.push(...write(2));
  const later = performance.now() + 10_000;
  t.mock.method(performance, 'now', () => later);
  t.mock.timers.tick(25);
  at(begun, 0).succeed();
  assert.deepEqual(await idsBegun(), [[0], [2]]);
  at(begun, 1).succeed();
  assert.deepEqual(await Promise.all(writes), ['deleted', 'deleted']);
});

describe('halves', () => {
  const range = (count: number): readonly number[] => Array.from({ length: count }, (_, index) => index);

  /** Runs writes to their end. Resolves to their batches. */
  async function run({ begun, write, idsBegun }: ReturnType<typeof createHeld>, count: number) {
    const before = begun.length;
    const writes = write(...range(count));
    for (let index = before; index < (await idsBegun()).length; index += 1) at(begun, index).succeed();
    await Promise.all(writes);
    return begun.slice(before).map(({ ids }) => ids);
  }

  test('half of the writes in progress starts at once, the others when it has committed', async () => {
    const held = createHeld({ inHalves: () => true });
    await run(held, 64);
    const before = held.begun.length;
    const writes = held.write(...range(32));
    const begunSince = () => held.begun.slice(before).map(({ ids }) => ids);
    assert.deepEqual(begunSince(), [range(32)]);
    writes.push(...held.write(...range(64).slice(32)));
    await turns();
    assert.equal(begunSince().length, 1, 'one batch at a time');
    at(held.begun, before).succeed();
    await turns();
    assert.deepEqual(begunSince(), [range(32), range(64).slice(32)]);
    at(held.begun, before + 1).succeed();
    await Promise.all(writes);
  });

  test('less than half waits for the end of the iteration', async () => {
    const held = createHeld({ inHalves: () => true });
    await run(held, 64);
    const before = held.begun.length;
    const writes = held.write(...range(31));
    assert.equal(held.begun.length, before);
    assert.deepEqual((await held.idsBegun()).slice(before), [range(31)]);
    at(held.begun, before).succeed();
    await Promise.all(writes);
  });

  test('writes in flight count as in progress', async () => {
    const held = createHeld({ inHalves: () => true });
    const writes = held.write(...range(40));
    await held.idsBegun();
    writes.push(...held.write(...range(100).slice(40)));
    for (let index = 0; index < (await held.idsBegun()).length; index += 1) at(held.begun, index).succeed();
    await Promise.all(writes);
    assert.deepEqual(
      held.begun.map(({ ids }) => ids),
      [range(40), range(90).slice(40), range(100).slice(90)],
    );
  });

  test('fewer than 32 writes in progress → one batch', async () => {
    const held = createHeld({ inHalves: () => true });
    for (let round = 0; round < 3; round += 1) assert.deepEqual(await run(held, 31), [range(31)]);
    assert.deepEqual(await run(held, 32), [range(16), range(32).slice(16)]);
  });

  test('inHalves is asked at each batch', async () => {
    let inHalves = false;
    const held = createHeld({ inHalves: () => inHalves });
    await run(held, 64);
    assert.equal((await run(held, 64)).length, 1);
    inHalves = true;
    await run(held, 64);
    assert.equal((await run(held, 64)).length, 2);
    inHalves = false;
    await run(held, 64);
    assert.equal((await run(held, 64)).length, 1);
  });

  test('after a peak, the size of a half follows the load', async () => {
    const held = createHeld({ inHalves: () => true });
    await run(held, 100);
    await run(held, 100);
    let rounds = 0;
    while ((await run(held, 48)).length === 1) rounds += 1;
    assert.ok(rounds > 10, `${rounds} rounds`);
    assert.equal((await run(held, 48)).length, 2);
  });
});

/** The keys of a write are the digits of its id. Writes of the same kind may share a 9 in a batch. */
const keysOf = (write: Write): readonly LockKey[] =>
  Array.from(`${idOf(write)}`, (name) => ({ name, isShared: name === '9' }));

describe('writes that share a key', () => {
  test('are never in one batch, and keep the order of their arrival', async () => {
    const { begun, write, idsBegun } = createHeld({ maxInFlight: 3, keysOf });
    const writes = write(1, 2, 12, 3, 23, 1);
    assert.deepEqual(await idsBegun(), [[1, 2, 3]]);
    at(begun, 0).succeed();
    assert.deepEqual(await idsBegun(), [[1, 2, 3], [12]]);
    at(begun, 1).succeed();
    assert.deepEqual(await idsBegun(), [[1, 2, 3], [12], [23, 1]]);
    at(begun, 2).succeed();
    assert.deepEqual(await Promise.all(writes), [1, 2, 12, 3, 23, 1].map(outcomeOf));
  });

  test('keep their order behind one that waits for another key', async () => {
    const { begun, write, idsBegun } = createHeld({ maxInFlight: 3, keysOf });
    const first = write(1);
    await idsBegun();
    const next = write(12, 2, 3);
    assert.deepEqual(await idsBegun(), [[1], [3]]);
    at(begun, 0).succeed();
    assert.deepEqual(await idsBegun(), [[1], [3], [12]]);
    at(begun, 2).succeed();
    assert.deepEqual(await idsBegun(), [[1], [3], [12], [2]]);
    for (const index of [1, 3]) at(begun, index).succeed();
    assert.deepEqual(await Promise.all([...first, ...next]), [1, 12, 2, 3].map(outcomeOf));
  });

  test('wait until the batch of the first has ended, with success or not; others continue', async () => {
    const { begun, write, idsBegun } = createHeld({ maxInFlight: 3, keysOf });
    const statuses = statusesOf(write(1));
    await idsBegun();
    const next = write(1, 2);
    assert.deepEqual(await idsBegun(), [[1], [2]]);
    at(begun, 0).fail(new Error('lost'));
    assert.deepEqual(await statuses, ['rejected']);
    assert.deepEqual(await idsBegun(), [[1], [2], [1]]);
    for (const index of [1, 2]) at(begun, index).succeed();
    assert.deepEqual(await Promise.all(next), ['absent', 'deleted']);
  });
});

describe('writes that share a key which their kind may share', () => {
  test('are in one batch, in the order of their arrival', async () => {
    const { begun, write, idsBegun } = createHeld({ maxInFlight: 3, keysOf });
    const ids = [9, 19, 9, 29, 91, 9];
    const writes = write(...ids);
    for (const expected of [
      [[9, 19, 9, 29]],
      [
        [9, 19, 9, 29],
        [91, 9],
      ],
    ]) {
      assert.deepEqual(await idsBegun(), expected);
      at(begun, expected.length - 1).succeed();
    }
    assert.deepEqual(await Promise.all(writes), ids.map(outcomeOf));
  });

  test('wait for the end of a batch that has begun', async () => {
    const { begun, write, idsBegun } = createHeld({ maxInFlight: 3, keysOf });
    const writes = write(9);
    await idsBegun();
    writes.push(...write(9, 1, 9));
    assert.deepEqual(await idsBegun(), [[9], [1]]);
    at(begun, 0).succeed();
    assert.deepEqual(await idsBegun(), [[9], [1], [9, 9]]);
    for (const index of [1, 2]) at(begun, index).succeed();
    await Promise.all(writes);
  });

  test('of another kind wait, and those behind them too', async () => {
    const { group, begun, write, idsBegun } = createHeld({ maxInFlight: 3, keysOf });
    const writes = [...write(9, 9), group.write(creation(9n)), ...write(9, 8)];
    for (const expected of [[[9, 9, 8]], [[9, 9, 8], [9]], [[9, 9, 8], [9], [9]]]) {
      assert.deepEqual(await idsBegun(), expected);
      at(begun, expected.length - 1).succeed();
    }
    await Promise.all(writes);
  });
});

test('on PostgreSQL writes share a key when they touch the same plant, idempotency key or token', () => {
  const create = (owner: string, id: bigint, key: string | null = null): Write =>
    creation(id, { owner, idempotencyKey: key });
  const token = newToken(mintSecret(), 'alice', { scopes, expiresAt: null, name: '' }, 0);
  const share = (a: Write, b: Write): boolean =>
    lockKeys(a).some(({ name }) => lockKeys(b).some((key) => key.name === name));
  const sharing: readonly (readonly [Write, Write])[] = [
    [create('alice', 1n), create('alice', 1n, 'key')],
    [create('alice', 1n), remove(1)],
    [create('alice', 1n, 'key'), create('alice', 2n, 'key')],
    [
      { kind: 'createToken', token },
      { kind: 'revokeToken', id: token.id, at: 0 },
    ],
    [
      { kind: 'revokeToken', id: token.id, at: 0 },
      { kind: 'recordTokenUse', id: token.id, at: 0 },
    ],
  ];
  for (const [a, b] of sharing) assert.ok(share(a, b), `${a.kind} and ${b.kind}`);
  const apart: readonly (readonly [Write, Write])[] = [
    [create('alice', 1n), create('alice', 2n)],
    [create('alice', 1n, 'key'), create('bob', 1n, 'key')],
    [create('bob', 1n), remove(1)],
  ];
  for (const [a, b] of apart) assert.ok(!share(a, b), `${a.kind} and ${b.kind}`);
});

describe('failures', () => {
  test('a rejected batch is retried in halves, in order: only a write rejected alone fails', async () => {
    const rejection = new StatementRejected('three');
    const { batches, write } = createRejecting((id) => (id === 3 ? rejection : undefined));
    const [two, three, four] = write(2, 3, 4);
    assert.ok(three !== undefined);
    await assert.rejects(three, rejection);
    assert.deepEqual(await Promise.all([two, four]), ['deleted', 'deleted']);
    assert.deepEqual(batches, [[2, 3, 4], [2], [3, 4], [3], [4]]);
  });

  test('one bad write of 64 is found in 12 retries', async () => {
    const { batches, write } = createRejecting((id) => (id === 40 ? new StatementRejected('40') : undefined));
    const statuses = await statusesOf(write(...Array.from({ length: 64 }, (_, index) => index)));
    assert.deepEqual(
      statuses.flatMap((status, id) => (status === 'rejected' ? [id] : [])),
      [40],
    );
    assert.equal(batches.length, 1 + 12);
  });

  test('several writes can be rejected; later ones wait until all are retried', async () => {
    const { batches, write } = createRejecting((id) => (id > 5 ? new StatementRejected(`${id}`) : undefined));
    const statuses = statusesOf(write(6, 1, 7));
    while (batches.length === 0) await setImmediate();
    const later = write(2);
    assert.deepEqual(await statuses, ['rejected', 'fulfilled', 'rejected']);
    assert.deepEqual(await Promise.all(later), ['deleted']);
    assert.deepEqual(batches, [[6, 1, 7], [6], [1, 7], [1], [7], [2]]);
  });

  test('a write rejected alone is not retried', async () => {
    const { batches, write } = createRejecting((id) =>
      id === 3 ? new StatementRejected('three') : undefined,
    );
    await assertRejected(write(3), StatementRejected);
    assert.deepEqual(batches, [[3]]);
  });

  test('store fails during the retries → finished writes keep their outcome', async () => {
    let tries = 0;
    const { write } = createRejecting((id) => {
      if (id !== 3) return undefined;
      tries += 1;
      return tries === 1 ? new StatementRejected('three') : new StoreUnavailable('gone');
    });
    const [two, ...others] = write(2, 3, 4);
    await assertRejected(others, StoreUnavailable);
    assert.equal(await two, 'deleted');
  });

  test('any other error rejects every write of the batch; the next batch is executed', async () => {
    const { begun, write, idsBegun } = createHeld();
    const lost = new StoreUnavailable('gone');
    const rejected = assertRejected(write(1, 2), lost);
    await idsBegun();
    const later = write(4);
    at(begun, 0).fail(lost);
    await rejected;
    assert.deepEqual(await idsBegun(), [[1, 2], [4]]);
    at(begun, 1).succeed();
    assert.deepEqual(await Promise.all(later), ['deleted']);
  });

  test('a commit that throws synchronously rejects its writes', async () => {
    const { write } = createRejecting(() => new TypeError('thrown'));
    await assertRejected(write(1, 2), TypeError);
    const thrown = new TypeError('at once');
    const group = createGroupCommit({
      maxBatch: 1,
      maxInFlight: 1,
      maxWaiting: 1,
      commit: () => {
        throw thrown;
      },
    });
    await assert.rejects(group.write(remove(1)), thrown);
    await group.close();
  });

  test('a write without an outcome from the engine is rejected', async () => {
    const group = createGroupCommit({
      maxBatch: 10,
      maxInFlight: 1,
      maxWaiting: 10,
      commit: async () => ['deleted'],
    });
    const [first, second] = [group.write(remove(1)), group.write(remove(2))];
    await assert.rejects(second, /returned no outcome/);
    assert.equal(await first, 'deleted');
  });
});

describe('closing', () => {
  test('finishes every accepted write, also queued ones, and rejects more', async () => {
    const { group, begun, write, idsBegun } = createHeld({ maxBatch: 2 });
    const writes = write(2, 4, 6);
    await idsBegun();
    const closed = group.close();
    await assertRejected(write(8), NothingStored);
    await assert.rejects(group.write(remove(10)), /closing/);
    assert.equal(await isSettled(closed), false);
    at(begun, 0).succeed();
    assert.deepEqual(await idsBegun(), [[2, 4], [6]]);
    assert.equal(await isSettled(closed), false);
    at(begun, 1).succeed();
    assert.deepEqual(await Promise.all(writes), ['deleted', 'deleted', 'deleted']);
    await closed;
  });

  test('waits for every pending batch', async () => {
    const { group, begun, write, idsBegun } = createHeld({ maxBatch: 1, maxInFlight: 3 });
    const statuses = statusesOf(write(1, 2, 3));
    await idsBegun();
    const closed = group.close();
    for (const index of [2, 0]) {
      at(begun, index).succeed();
      assert.equal(await isSettled(closed), false);
    }
    at(begun, 1).fail(new Error('lost'));
    await closed;
    assert.deepEqual(await statuses, ['fulfilled', 'rejected', 'fulfilled']);
  });

  test('includes writes submitted just before it', async () => {
    const { group, begun, write, idsBegun } = createHeld();
    const writes = write(2);
    const closed = group.close();
    assert.equal(await isSettled(closed), false);
    assert.deepEqual(await idsBegun(), [[2]]);
    at(begun, 0).succeed();
    assert.deepEqual(await Promise.all(writes), ['deleted']);
    await closed;
  });

  test('waits for writes that came after a time without writes', async () => {
    const { group, begun, write, idsBegun } = createHeld();
    const first = write(2);
    await idsBegun();
    at(begun, 0).succeed();
    await Promise.all(first);
    const writes = write(4);
    await idsBegun();
    const closed = group.close();
    assert.equal(await isSettled(closed), false);
    at(begun, 1).succeed();
    assert.deepEqual(await Promise.all(writes), ['deleted']);
    await closed;
  });

  test('ends when the last queued write is rejected for its age, and stops its timer', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const stop = t.mock.method(globalThis, 'clearInterval');
    const { group, write } = createHeld({ maxWaitMs: 100 });
    const late = write(2);
    const closed = group.close();
    t.mock.timers.tick(125);
    await assertRejected(late, NothingStored);
    await closed;
    assert.equal(stop.mock.callCount(), 1);
  });

  test('resolves at once when nothing is pending, and can be called twice', async () => {
    const { group, idsBegun } = createHeld();
    await Promise.all([group.close(), group.close()]);
    await assert.rejects(group.write(remove(1)), NothingStored);
    assert.deepEqual(await idsBegun(), []);
  });
});
