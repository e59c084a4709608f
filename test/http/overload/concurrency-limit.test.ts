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
  const { run } = createAdmission(LIMIT, () => undefined);
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

  function begin(owner: string | undefined): Started {
    const { promise, resolve } = Promise.withResolvers<string>();
    return { answered: run(owner, () => promise), finish: () => resolve('done') };
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
