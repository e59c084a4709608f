import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextIteration } from 'node:timers/promises';
import { createLoopBudget } from '../../../src/http/overload/loop-budget.ts';

test('requests queued for the loop → owners take turns, each in its own order', async () => {
  const waitForLoopBudget = createLoopBudget();
  assert.equal(waitForLoopBudget('alice'), undefined);
  const busyUntil = performance.now() + 10;
  while (performance.now() < busyUntil);
  const started: string[] = [];
  const request = (owner: string | undefined, name: string) =>
    waitForLoopBudget(owner)?.then(() => started.push(name)) ?? assert.fail('nothing is queued');
  const names = ['a1', 'a2', 'a3', 'a4'];
  const queued = names.map((name) => request('alice', name));
  await Promise.all([...queued, request('bob', 'b1'), request('bob', 'b2'), request(undefined, 'none')]);
  assert.deepEqual(started, ['a1', 'b1', 'none', 'a2', 'b2', 'a3', 'a4']);
});

test('short iterations → each starts twice as many queued requests, up to 64; a long one halves the number', async (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const waitForLoopBudget = createLoopBudget();
  assert.equal(waitForLoopBudget('alice'), undefined);
  const started: number[] = [];
  now += 10;
  const queued = Array.from({ length: 400 }, (_, number) =>
    waitForLoopBudget('alice')?.then(() => started.push(number)),
  );
  const sizes: number[] = [];
  for (const ms of [0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 10, 10, 0]) {
    const before = started.length;
    now += ms;
    await nextIteration();
    sizes.push(started.length - before);
  }
  assert.deepEqual(sizes, [1, 2, 4, 8, 16, 32, 64, 64, 32, 64, 32, 16, 32]);
  await (waitForLoopBudget('alice') ?? assert.fail('a new request passed those that are queued'));
  assert.deepEqual(started, [...queued.keys()]);
});
