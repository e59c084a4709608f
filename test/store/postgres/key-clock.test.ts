import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { ageKeys, connections as options, postgres, rowsOf } from '../../support/engines.ts';
import { createOnce, failTest, remove } from '../../support/store-setup.ts';

const HOUR_MS = 3_600_000;

test('instances whose clocks differ by a day agree on the age of keys: it is that of the server', async (t) => {
  const url = await postgres.freshUrl(t);
  const open = async (fastMs: number) => {
    const now = (): number => Date.now() + fastMs;
    const store = await openStore(url, {
      now,
      connections: options,
      onFatal: assert.fail,
      keyDeletion: { onFailure: failTest },
    });
    t.after(() => store.close());
    return store;
  };
  const stores = await Promise.all([open(0), open(25 * HOUR_MS), open(-25 * HOUR_MS)]);
  for (const [index, store] of stores.entries()) {
    const id = BigInt(index);
    assert.equal(await store.write(createOnce(id, `${id}`)), 'created');
    await store.write(remove(id));
    for (const other of stores) assert.equal(await other.write(createOnce(id, `${id}`)), 'createdReplayed');
  }
  const age =
    'SELECT max(extract(epoch FROM clock_timestamp()) * 1000 - first_used_at) AS max FROM idempotency_keys';
  const [row] = await rowsOf(url, age);
  assert.ok(Math.abs(Number(row?.max)) < HOUR_MS, `${row?.max} ms`);
  await ageKeys(url, 24 * HOUR_MS);
  for (const [index, store] of stores.entries())
    assert.equal(await store.write(createOnce(BigInt(index), `${index}`)), 'created');
});
