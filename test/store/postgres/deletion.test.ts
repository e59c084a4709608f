import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { createPerOwnerFallback, PER_OWNER_MS } from '../../../src/store/postgres/commit.ts';
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
    const keyOf = (id: bigint) => (id === 2n ? `${round}` : null);
    const created = await each((owner, id) => create(id, { owner, idempotencyKey: keyOf(id) }));
    assert.deepEqual(new Set(created), new Set(['created']));
    assert.deepEqual(new Set(await each(deletion)), new Set(['deleted']));
    assert.deepEqual(new Set(await each(deletion)), new Set(['absent']));
  }
  const rejected = async () => Number((await rowsOf(url, 'SELECT last_value FROM rejected'))[0]?.last_value);
  const count = await rejected();
  assert.ok(count >= 1 && count <= 2, 'only the batches in flight tried it');
});

test('ten minutes after a rejection → one statement for all owners, once the deletion of keys has had one', async (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const run = createPerOwnerFallback();
  let isDistributed = true;
  const tried: boolean[] = [];
  const work = async (perOwner: boolean): Promise<void> => {
    tried.push(perOwner);
    const message = 'could not run distributed query with FOR UPDATE/SHARE commands';
    if (isDistributed && !perOwner) throw Object.assign(new Error(message), { code: '0A000' });
  };
  const triedBy = async (...calls: readonly Promise<void>[]): Promise<readonly boolean[]> => {
    await Promise.all(calls);
    return tried.splice(0);
  };
  assert.deepEqual(await triedBy(run(work)), [false, true]);
  now = PER_OWNER_MS - 1;
  assert.deepEqual(await triedBy(run(work), run(work, { mayEnd: true })), [true, true]);
  now = PER_OWNER_MS;
  assert.deepEqual(await triedBy(run(work)), [true]);
  assert.deepEqual(await triedBy(run(work, { mayEnd: true })), [false, true]);
  isDistributed = false;
  assert.deepEqual(await triedBy(run(work, { mayEnd: true })), [true]);
  now = 2 * PER_OWNER_MS;
  assert.deepEqual(await triedBy(run(work)), [true]);
  assert.deepEqual(await triedBy(run(work, { mayEnd: true })), [false]);
  assert.deepEqual(await triedBy(run(work)), [false]);
});
