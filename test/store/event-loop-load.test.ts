import assert from 'node:assert/strict';
import { it } from 'node:test';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { watchEventLoop } from '../../src/store/event-loop-load.ts';
import { until } from '../support/patience.ts';

it('the event loop is busy while it runs code, and not while it waits', async (t) => {
  await setImmediate();
  const now = performance.now.bind(performance);
  // The clock of the measurements; a machine that stalls does not advance it.
  let clock = now();
  t.mock.method(performance, 'now', () => clock);
  const isBusy = watchEventLoop();
  const spinFor = (ms: number): void => {
    for (const end = now() + ms; now() < end; );
  };
  spinFor(60);
  clock += 49;
  assert.equal(isBusy(), false, 'a measurement takes 50 ms');
  clock += 1;
  assert.equal(isBusy(), true);
  await setImmediate();
  assert.equal(isBusy(), true, 'the last measurement holds for 50 ms');
  await until(() => {
    clock += 50;
    return !isBusy();
  });
  // Longer than all busy time, to show that only the last period counts.
  await setTimeout(500);
  clock += 50;
  assert.equal(isBusy(), false);
  spinFor(60);
  clock += 50;
  assert.equal(isBusy(), true);
});
