import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { migratePostgres } from '../../../src/store/postgres/migrate.ts';
import type { Outcome, Write } from '../../../src/store/store.ts';
import { execute, connections as options, postgres, rowsOf } from '../../support/engines.ts';
import { REJECT_SEVERAL_OWNERS } from '../../support/faults/citus-delete-limit.ts';
import { create } from '../../support/store-setup.ts';

const OWNERS = ['alice', 'bob', 'carol'];
const IDS = [1n, 2n, 3n, 4n];

const deletion = (owner: string, id: bigint): Write => ({ kind: 'deletePlant', owner, id });

test('rows of several owners cannot be locked together → writes run per owner', async (t) => {
  const url = await postgres.freshUrl(t);
  await migratePostgres(url);
  await execute(url, REJECT_SEVERAL_OWNERS);
  const store = await openStore(url, { now: Date.now, connections: options, onFatal: assert.fail });
  t.after(() => store.close());
  const each = (write: (owner: string, id: bigint) => Write): Promise<readonly Outcome[]> =>
    Promise.all(OWNERS.flatMap((owner) => IDS.map((id) => store.write(write(owner, id)))));

  for (let round = 0; round < 3; round += 1) {
    const idempotency = (id: bigint) => (id === 2n ? { key: `${round}`, digest: Buffer.alloc(32) } : null);
    const created = await each((owner, id) => create(id, { owner, idempotency: idempotency(id) }));
    assert.deepEqual(new Set(created), new Set(['created']));
    assert.deepEqual(new Set(await each(deletion)), new Set(['deleted']));
    assert.deepEqual(new Set(await each(deletion)), new Set(['absent']));
  }
  const rejected = async () => Number((await rowsOf(url, 'SELECT last_value FROM rejected'))[0]?.last_value);
  const before = await rejected();
  assert.ok(before >= 1 && before <= 2, 'only the batches in flight tried it');

  const now = performance.now.bind(performance);
  t.mock.method(performance, 'now', () => now() + 11 * 60 * 1_000);
  await each((owner, id) => create(id, { owner }));
  assert.deepEqual(new Set(await each(deletion)), new Set(['deleted']));
  assert.ok((await rejected()) > before, 'tried again after ten minutes');
});
