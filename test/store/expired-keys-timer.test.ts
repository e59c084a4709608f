import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextIteration } from 'node:timers/promises';
import { KEY_EXPIRY_INTERVAL_MS, startKeyExpiry } from '../../src/store/expired-keys-timer.ts';
import { failTest } from '../support/store-setup.ts';

test('a deletion takes longer than a minute → the next one starts only after its end, also by an error', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const deletions: PromiseWithResolvers<void>[] = [];
  const failures: unknown[] = [];
  const expiry = startKeyExpiry(
    () => {
      const deletion = Promise.withResolvers<void>();
      deletions.push(deletion);
      return deletion.promise;
    },
    { onFailure: (error) => void failures.push(error) },
  );
  t.after(() => expiry.end());
  expiry.runNow();
  t.mock.timers.tick(2 * KEY_EXPIRY_INTERVAL_MS);
  assert.equal(deletions.length, 1);
  const fault = new Error('locked');
  deletions[0]?.reject(fault);
  await nextIteration();
  assert.deepEqual(failures, [fault]);
  t.mock.timers.tick(KEY_EXPIRY_INTERVAL_MS);
  assert.equal(deletions.length, 2);
  deletions[1]?.resolve();
  await nextIteration();
  t.mock.timers.tick(KEY_EXPIRY_INTERVAL_MS);
  assert.equal(deletions.length, 3);
});

test('the end comes while a deletion runs → its error is not reported, and no further one begins', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const deletion = Promise.withResolvers<void>();
  let deletions = 0;
  const expiry = startKeyExpiry(
    () => {
      deletions += 1;
      return deletion.promise;
    },
    { onFailure: failTest },
  );
  t.mock.timers.tick(KEY_EXPIRY_INTERVAL_MS);
  expiry.end();
  deletion.reject(new Error('the store is closed'));
  await nextIteration();
  t.mock.timers.tick(KEY_EXPIRY_INTERVAL_MS);
  assert.equal(deletions, 1);
});
