import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { PAUSE_MS, shareReads } from '../../../src/store/postgres/shared-reads.ts';
import {
  NothingStored,
  StatementRejected,
  StoreDamaged,
  StoreUnavailable,
} from '../../../src/store/store.ts';

/** Shared reads whose result is the key in capitals. `fail` may return the error of a statement for some keys. */
function startReads(
  limits: { max?: number; parallel?: number } = {},
  fail: (keys: readonly string[]) => Error | undefined = () => undefined,
) {
  const groups: (readonly string[])[] = [];
  const readAll = async (keys: readonly string[]) => {
    groups.push(keys);
    const error = fail(keys);
    if (error !== undefined) throw error;
    return keys.map((key) => (key === 'none' ? undefined : key.toUpperCase()));
  };
  const clock = { ms: 0 };
  const read = shareReads({ max: 100, parallel: 1, ...limits, readAll, monotonicNow: () => clock.ms });
  return { groups, clock, read };
}

const outcomesOf = async (reads: readonly Promise<unknown>[]) =>
  (await Promise.allSettled(reads)).map((one) => (one.status === 'fulfilled' ? one.value : one.reason));

describe('reads of two event-loop iterations', () => {
  test('share a statement, whichever callback starts them; each gets its result', async () => {
    const { groups, read } = startReads();
    const first = read('a');
    await Promise.resolve();
    const second = read('none');
    await new Promise((resolve) => process.nextTick(resolve));
    const third = read('a');
    await setImmediate();
    assert.deepEqual(await Promise.all([first, second, third, read('b')]), ['A', undefined, 'A', 'B']);
    assert.deepEqual(groups, [['a', 'none', 'a', 'b']]);
    assert.equal(await read('c'), 'C');
    assert.deepEqual(groups.at(-1), ['c']);
  });

  test('are divided among parallel statements, up to the max number in each', async () => {
    for (const [reads, sizes] of [
      [1, [1]],
      [3, [1, 1, 1]],
      [4, [2, 2]],
      [9, [3, 3, 3]],
      [14, [4, 4, 4, 2]],
    ] as const) {
      const { groups, read } = startReads({ max: 4, parallel: 3 });
      await Promise.all(Array.from({ length: reads }, (_, place) => read(String(place))));
      assert.deepEqual(
        groups.map(({ length }) => length),
        sizes,
      );
    }
  });
});

for (const rejection of [new StatementRejected('division by zero'), new StoreDamaged('invalid page')])
  test(`${rejection.name} for one of the keys → it fails alone, and nothing is shared for PAUSE_MS`, async () => {
    const { groups, clock, read } = startReads({}, (keys) => (keys.includes('bad') ? rejection : undefined));
    assert.deepEqual(await outcomesOf([read('a'), read('bad'), read('b')]), ['A', rejection, 'B']);
    for (const [ms, expected] of [
      [PAUSE_MS - 1, [['a'], ['b']]],
      [PAUSE_MS, [['a', 'b']]],
    ] as const) {
      groups.length = 0;
      clock.ms = ms;
      assert.deepEqual(await outcomesOf([read('a'), read('b')]), ['A', 'B']);
      assert.deepEqual(groups, expected);
    }
  });

describe('statement fails, but not for its content → all its reads reject, without a second try', () => {
  const fromServer = (code: string) => Object.assign(new Error(code), { severity: 'ERROR', code });
  for (const [title, error, isShared] of [
    ['server is full', new NothingStored('no connection', { cause: fromServer('53300') }), true],
    ['server stops', new StoreUnavailable('PostgreSQL', { cause: fromServer('57P01') }), true],
    ['host is a standby', new StoreUnavailable('the host is not the primary'), true],
    ['timeout: then nothing is shared', new StoreUnavailable('slow', { cause: fromServer('57014') }), false],
  ] as const)
    test(title, async () => {
      let failure: Error | undefined = error;
      const { groups, read } = startReads({}, () => failure);
      assert.deepEqual(await outcomesOf([read('a'), read('b')]), [error, error]);
      assert.equal(groups.length, 1);
      failure = undefined;
      assert.deepEqual(await outcomesOf([read('a'), read('b')]), ['A', 'B']);
      assert.deepEqual(groups.slice(1), isShared ? [['a', 'b']] : [['a'], ['b']]);
    });
});
