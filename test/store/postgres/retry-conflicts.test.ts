import assert from 'node:assert/strict';
import { test } from 'node:test';
import { retryConflicts } from '../../../src/store/postgres/retry-conflicts.ts';

const failure = (code: string): Error => Object.assign(new Error(`failed with ${code}`), { code });

/** Work that fails with these codes, one after the other, and then succeeds. */
function failing(codes: readonly string[]) {
  let runs = 0;
  const work = async (): Promise<string> => {
    const code = codes[runs];
    runs += 1;
    if (code !== undefined) throw failure(code);
    return 'done';
  };
  return { work, runs: () => runs };
}

for (const [title, codes] of [
  ['success', []],
  ['deadlock', ['40P01']],
  ['serialization failures and deadlocks, up to seven', Array(7).fill(['40001', '40P01']).flat().slice(0, 7)],
] as const) {
  test(`${title} → done after ${codes.length + 1} attempts`, async () => {
    const { work, runs } = failing(codes);
    assert.equal(await retryConflicts(work), 'done');
    assert.equal(runs(), codes.length + 1);
  });
}

test('eight deadlocks → fails with the last error', async () => {
  const { work, runs } = failing(Array(8).fill('40P01'));
  await assert.rejects(retryConflicts(work), { code: '40P01' });
  assert.equal(runs(), 8);
});

test('any other error → fails at once', async () => {
  for (const code of ['23505', '57P01', '08006']) {
    const { work, runs } = failing([code]);
    await assert.rejects(retryConflicts(work), { code });
    assert.equal(runs(), 1);
  }
});

test('pauses are random, and their limit doubles from 10 ms', async (t) => {
  const random = t.mock.method(Math, 'random', () => 0);
  const { work } = failing(Array(7).fill('40001'));
  await retryConflicts(work);
  assert.equal(random.mock.callCount(), 7);

  random.mock.mockImplementation(() => 1);
  const begun = performance.now();
  await retryConflicts(failing(['40001', '40001', '40001']).work);
  const least = 10 + 20 + 40;
  assert.ok(performance.now() - begun >= least - 3, 'the pauses are shorter');
});
