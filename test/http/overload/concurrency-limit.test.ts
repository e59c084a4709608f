import assert from 'node:assert/strict';
import { test } from 'node:test';
import Fastify from 'fastify';
import { toApiError } from '../../../src/http/error-response.ts';
import { createConcurrencyLimit } from '../../../src/http/overload/concurrency-limit.ts';
import { usedHeap } from '../../support/process-resources.ts';

const LIMIT = 4;
const OWNER_LIMIT = 3;

interface Started {
  readonly answered: Promise<unknown>;
  finish(): void;
}

test('owner above three quarters of the limit → 50301 for this owner; a finished request frees its place', async () => {
  const begin = createStarter();
  // Twice, and with more owners than the limit: the slots of an owner are free again.
  for (const owner of ['alice', 'bob', 'carol', 'dave', 'erin', 'alice', 'bob']) {
    const started = Array.from({ length: OWNER_LIMIT }, () => begin(owner));
    const headers = { 'retry-after': '1' };
    const ofShare = { code: 50301, limit: 'owner', message: /of this owner/, headers };
    await assert.rejects(begin(owner).answered, ofShare);
    const other = begin('other');
    await assert.rejects(begin('newcomer').answered, {
      code: 50301,
      limit: undefined,
      message: /^too many requests are/,
      headers,
    });
    for (const { finish, answered } of [...started, other]) {
      finish();
      assert.equal(await answered, 'done');
    }
  }
});

for (const [limit, slots] of [
  [2, 1],
  [3, 2],
  [5, 3],
] as const)
  test(`limit ${limit}: one owner gets ${slots}, and another owner the rest`, async () => {
    const begin = createStarter(limit);
    const owners = [
      ...Array.from({ length: slots + 1 }, () => 'alice'),
      ...Array.from({ length: limit - slots }, () => 'bob'),
    ];
    const all = owners.map((owner) => begin(owner));
    for (const { finish } of all) finish();
    const settled = await Promise.allSettled(all.map(({ answered }) => answered));
    const rejected = settled.flatMap((one, index) =>
      one.status === 'rejected' ? [[index, one.reason.message]] : [],
    );
    assert.deepEqual(rejected, [
      [slots, 'too many requests of this owner or address are in flight; retry later'],
    ]);
  });

test('limit 1: any owner gets the only slot', async () => {
  const begin = createStarter(1);
  for (const owner of ['alice', 'bob']) {
    const { finish, answered } = begin(owner);
    finish();
    assert.equal(await answered, 'done');
  }
});

test('more owners than the limit → the requests of an owner in flight still count', async () => {
  const begin = createStarter();
  for (const owner of ['alice', 'bob', 'carol', 'dave', 'erin']) {
    const { finish, answered } = begin(owner);
    finish();
    await answered;
  }
  const [first, ...others] = Array.from({ length: OWNER_LIMIT }, () => begin('frank'));
  first?.finish();
  await first?.answered;
  const last = begin('frank');
  const tooMany = begin('frank');
  tooMany.finish();
  await assert.rejects(tooMany.answered, { code: 50301, message: /of this owner/ });
  for (const { finish, answered } of [...others, last]) {
    finish();
    assert.equal(await answered, 'done');
  }
});

test('many owners, one after the other → no memory is kept for them', async () => {
  const { run } = createConcurrencyLimit(LIMIT, () => undefined);
  const owners = 50_000;
  const grownBy = async (kind: string): Promise<number> => {
    const before = usedHeap();
    for (let owner = 0; owner < owners; owner += 1) await run(`${kind} ${owner}`, async () => undefined);
    return usedHeap() - before;
  };
  await grownBy('first');
  const bytes = await grownBy('second');
  assert.ok(bytes < 50 * owners, `${bytes} bytes for ${owners} owners`);
});

test('limit reached → the hook rejects a request before its handler; below the limit it passes', async () => {
  const limit = createConcurrencyLimit(1, () => undefined);
  const app = Fastify();
  app.get('/', { onRequest: limit.rejectWhenFull }, async () => 'handled');
  app.setErrorHandler((error, _request, reply) => reply.send(String(toApiError(error).code)));
  const { promise, resolve } = Promise.withResolvers<void>();
  const running = limit.run('alice', () => promise);
  assert.equal((await app.inject('/')).body, '50301');
  resolve();
  await running;
  assert.equal((await app.inject('/')).body, 'handled');
});

/** Returns a function that begins a request of an owner within new limits. */
function createStarter(limit = LIMIT): (owner: string) => Started {
  const { run } = createConcurrencyLimit(limit, () => undefined);
  return (owner) => {
    const { promise, resolve } = Promise.withResolvers<string>();
    return { answered: run(owner, () => promise), finish: () => resolve('done') };
  };
}
