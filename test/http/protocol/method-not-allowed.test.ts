import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { type FastifyInstance, fastify } from 'fastify';
import { toApiError } from '../../../src/http/error-response.ts';
import { answerOtherMethods, collectMethods } from '../../../src/http/protocol/method-not-allowed.ts';
import { sqlite } from '../../support/engines.ts';
import { startService } from '../../support/service.ts';

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

  it('HEAD of a path without it → the headers of a GET (RFC 9110 §9.3.2)', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t));
    const [head, get] = await Promise.all(
      ['HEAD', 'GET'].map(async (method) => {
        const { status, headers } = await fetch(`${service.url}/plants/1`, { method });
        return [status, ...['allow', 'content-length', 'content-type'].map((name) => headers.get(name))];
      }),
    );
    assert.deepEqual(head, get);
    assert.equal(get?.[0], 405);
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
