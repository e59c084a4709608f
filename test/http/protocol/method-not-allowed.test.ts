import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { type FastifyInstance, fastify } from 'fastify';
import { toApiError } from '../../../src/http/error-response.ts';
import { answerOtherMethods, collectMethods } from '../../../src/http/protocol/method-not-allowed.ts';

const PATHS = ['/plants', '/plants/:id', '/plants/:id/notes/:note'];

describe('methods without a route', () => {
  it('path with two parameters → 405 for other methods, 404 if a parameter is empty', async (t) => {
    const app = await startApp(t);
    assert.equal(await codeOf(app, 'DELETE', '/plants/7/notes/1'), undefined);
    assert.equal(await codeOf(app, 'PUT', '/plants/7/notes/1'), 40500);
    assert.equal(await codeOf(app, 'DELETE', '/plants/7'), undefined);
    for (const path of ['/plants/', '/plants/7/notes/'])
      assert.equal(await codeOf(app, 'DELETE', path), 40401);
  });
});

async function startApp(t: TestContext): Promise<FastifyInstance> {
  const app = fastify();
  t.after(() => app.close());
  app.setErrorHandler((error, _request, reply) => {
    void reply.send({ error: toApiError(error).code });
  });
  const methods = collectMethods(app);
  for (const url of PATHS) app.route({ method: 'DELETE', url, handler: async () => ({}) });
  answerOtherMethods(app, methods);
  await app.ready();
  return app;
}

async function codeOf(app: FastifyInstance, method: 'DELETE' | 'PUT', url: string): Promise<unknown> {
  const body: unknown = (await app.inject({ method, url })).json();
  return typeof body === 'object' && body !== null && 'error' in body ? body.error : undefined;
}
