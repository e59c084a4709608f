import assert from 'node:assert/strict';
import { test } from 'node:test';
import Fastify from 'fastify';
import { responseOf } from '../../src/http/batched-response.ts';
import { ClientGone, toApiError } from '../../src/http/error-response.ts';
import { ownerOf } from '../../src/http/operation.ts';
import {
  NothingStored,
  StoreDamaged,
  StoreOverloaded,
  StoreUnavailable,
  withNothingStored,
} from '../../src/store/store.ts';

test('too many queued writes → 50301, retry soon', () => {
  const { code, headers } = toApiError(new StoreOverloaded('8 writes are already queued'));
  assert.deepEqual([code, headers], [50301, { 'retry-after': '1' }]);
});

test('client ended its side → 50301, retry soon, connection closed', () => {
  const { code, headers } = toApiError(new ClientGone());
  assert.deepEqual([code, headers], [50301, { 'retry-after': '1', connection: 'close' }]);
});

test('failed lookup before a write → nothing was stored; the log has the reason once', () => {
  const reason = new Error('Connection terminated');
  const error = withNothingStored(new StoreUnavailable('no connection', { cause: reason }));
  assert.ok(error instanceof NothingStored);
  assert.deepEqual([error.message, error.cause], ['no connection', reason]);
  for (const other of [new StoreDamaged('a damaged page'), reason])
    assert.equal(withNothingStored(other), other);
});

test('route without authentication, or response of another server → an error', async () => {
  const app = Fastify();
  app.get('/owner', async (request) => ownerOf(request));
  app.get('/response', async (_request, reply) => responseOf(reply).isAnswered);
  for (const [path, message] of [
    ['/owner', 'the route has no authentication'],
    ['/response', 'the response was not created by createHttpServer'],
  ] as const) {
    const answer = await app.inject(path);
    assert.equal(answer.statusCode, 500);
    assert.equal(answer.json().message, message);
  }
});
