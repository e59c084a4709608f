import assert from 'node:assert/strict';
import { test } from 'node:test';
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
