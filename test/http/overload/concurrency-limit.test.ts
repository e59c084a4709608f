import assert from 'node:assert/strict';
import { test } from 'node:test';
import Fastify from 'fastify';
import { toApiError } from '../../../src/http/error-response.ts';
import { createAdmission } from '../../../src/http/overload/concurrency-limit.ts';

const LIMIT = 4;
const OWNER_LIMIT = 3;

interface Started {
  readonly answered: Promise<unknown>;
  finish(): void;
}

test('owner above three quarters of the limit → 50301 for this owner; a finished request frees its place', async () => {
  const begin = createStarter();
  // Twice, and with more owners than the limit: the places of an owner are free again.
  for (const owner of ['alice', 'bob', 'carol', 'dave', 'erin', 'alice', 'bob']) {
    const started = Array.from({ length: OWNER_LIMIT }, () => begin(owner));
    await assert.rejects(begin(owner).answered, { code: 50301, message: /of this owner/ });
    const other = begin('other');
    await assert.rejects(begin(undefined).answered, { code: 50301, message: /^too many requests are/ });
    for (const { finish, answered } of [...started, other]) {
      finish();
      assert.equal(await answered, 'done');
    }
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

test('limit reached → the hook rejects a request before its handler; below the limit it passes', async () => {
  const admission = createAdmission(1, () => undefined);
  const app = Fastify();
  app.get('/', { onRequest: admission.rejectWhenFull }, async () => 'handled');
  app.setErrorHandler((error, _request, reply) => reply.send(String(toApiError(error).code)));
  const { promise, resolve } = Promise.withResolvers<void>();
  const running = admission.run('alice', () => promise);
  assert.equal((await app.inject('/')).body, '50301');
  resolve();
  await running;
  assert.equal((await app.inject('/')).body, 'handled');
});

/** Returns a function that begins a request of an owner within new limits. */
function createStarter(): (owner: string | undefined) => Started {
  const { run } = createAdmission(LIMIT, () => undefined);
  return (owner) => {
    const { promise, resolve } = Promise.withResolvers<string>();
    return { answered: run(owner, () => promise), finish: () => resolve('done') };
  };
}
