import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sharePages } from '../../../src/store/postgres/shared-pages.ts';
import type { IdRange, PlantPage } from '../../../src/store/store.ts';
import { upTo } from '../../support/store-setup.ts';

const ALL: IdRange = { from: 0n, to: 99n };
const REST: IdRange = { from: 50n, to: 99n };

test('lists of one event-loop iteration → one read for each page that they want', async () => {
  const reads: string[] = [];
  const list = sharePages(async (owner, { from }, { plants }) => {
    reads.push(`${owner} ${from} ${plants}`);
    return pageOf(reads.length);
  });
  const [first, same, rest, shorter, other] = await Promise.all([
    list('alice', ALL, upTo(20)),
    list('alice', ALL, upTo(20)),
    list('alice', REST, upTo(20)),
    list('alice', ALL, upTo(10)),
    list('bob', ALL, upTo(20)),
  ]);
  assert.deepEqual(reads, ['alice 0 20', 'alice 50 20', 'alice 0 10', 'bob 0 20']);
  assert.equal(same, first);
  assert.deepEqual(
    [first, rest, shorter, other].map(({ count }) => count),
    [1, 2, 3, 4],
  );
});

test('write acknowledged before a list began → its read is sent later, and an earlier read is not reused', async () => {
  let written = 0;
  const list = sharePages(async () => pageOf(written));
  const before = list('alice', ALL, upTo(20));
  written = 1;
  const after = list('alice', ALL, upTo(20));
  assert.equal((await before).count, 1);
  assert.equal((await after).count, 1);
  written = 2;
  assert.equal((await list('alice', ALL, upTo(20))).count, 2);
});

test('read fails → all its lists are rejected, and the next list reads again', async () => {
  const failure = new Error('the server is gone');
  let fails = true;
  const list = sharePages(async () => {
    if (fails) throw failure;
    return pageOf(7);
  });
  const lists = await Promise.allSettled([list('alice', ALL, upTo(20)), list('alice', ALL, upTo(20))]);
  const rejected = { status: 'rejected', reason: failure };
  assert.deepEqual(lists, [rejected, rejected]);
  fails = false;
  assert.equal((await list('alice', ALL, upTo(20))).count, 7);
});

function pageOf(count: number): PlantPage {
  return { json: '[]', count, last: undefined, more: false };
}
