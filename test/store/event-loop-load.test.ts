import assert from 'node:assert/strict';
import { it } from 'node:test';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { watchEventLoop } from '../../src/store/event-loop-load.ts';

it('the event loop is busy while it runs code, and not while it waits', async () => {
  await setImmediate();
  const isBusy = watchEventLoop();
  const spinFor = (ms: number): void => {
    for (const end = performance.now() + ms; performance.now() < end; );
  };
  // 60 ms exceed the period of a measurement.
  spinFor(60);
  assert.equal(isBusy(), true);
  await setTimeout(200);
  assert.equal(isBusy(), false);
  spinFor(1);
  assert.equal(isBusy(), false, 'the last measurement holds for 50 ms');
  spinFor(60);
  assert.equal(isBusy(), true);
});
