import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { within } from '../src/running-time.ts';

const HOUR_MS = 3_600_000;

describe('within', () => {
  it('event happens → resolves, and its timer ends', async (t) => {
    const looksAtClock = countLooks(t);
    await within(HOUR_MS, Promise.resolve());
    assert.equal(looksAtClock(), 0);
  });

  it('event fails → rejects with its error, and its timer ends', async (t) => {
    const looksAtClock = countLooks(t);
    const error = new Error('failed');
    await assert.rejects(within(HOUR_MS, Promise.reject(error)), error);
    assert.equal(looksAtClock(), 0);
  });
});

/** Returns a function that counts how often the timer looks at the clock in the next second. */
function countLooks({ mock }: TestContext): () => number {
  mock.timers.enable({ apis: ['setTimeout'] });
  const now = mock.method(performance, 'now');
  return () => {
    const before = now.mock.callCount();
    mock.timers.tick(1_000);
    return now.mock.callCount() - before;
  };
}
