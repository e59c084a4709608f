import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Header, headerOf, type RawAnswer, sendRaw, sendRequest } from '../support/clients/raw-http.ts';
import { engines } from '../support/engines.ts';
import { startService } from '../support/service.ts';

const PAGE = 'https://plants.example';

/** The headers of every response, error responses of the parser included. */
const COMMON = [
  'Cache-Control',
  'Connection',
  'Content-Type',
  'Date',
  'X-Content-Type-Options',
  'X-Request-Id',
];

/** Headers that only some responses have, but that no request below is about. */
const OTHERS = [
  'Access-Control-Allow-Origin',
  'Access-Control-Expose-Headers',
  'Content-Length',
  'Keep-Alive',
  'Strict-Transport-Security',
  'Transfer-Encoding',
  'Vary',
];

/** Asserts that a response has the common and the special headers, all in the documented case. */
function assertNames({ status, headers }: RawAnswer, expected: number, ...special: readonly string[]): void {
  assert.equal(status, expected);
  const names = headers.map(([name]) => name).filter((name) => !OTHERS.includes(name));
  assert.deepEqual(names.sort(), [...COMMON, ...special].sort(), `of a ${status}`);
}

for (const engine of engines) {
  test(`header names are sent in the documented case, on ${engine.name}`, async (t) => {
    const flags = { corsOrigin: PAGE, hsts: '60' };
    const { url, token } = await startService(t, await engine.freshUrl(t), flags);
    const writer: Header = ['Authorization', `Bearer ${await token()}`];
    const reader: Header = ['Authorization', `Bearer ${await token('bob', { scopes: ['plants:read'] })}`];
    const ask = (method: string, path: string, ...headers: readonly Header[]): Promise<RawAnswer> =>
      sendRequest(url, { method, path, headers: [['Origin', PAGE], ...headers] });
    const create = (id: number): Promise<RawAnswer> =>
      sendRequest(url, {
        method: 'POST',
        path: '/plants',
        headers: [writer, ['Content-Type', 'application/json'], ['Idempotency-Key', `key-${id}`]],
        body: `{"id":${id},"name":"Fern"}`,
      });

    assertNames(await create(1), 200);
    assertNames(await create(1), 200, 'Idempotent-Replayed');
    // More than one page of the store, so that the list is streamed.
    for (let id = 2; id <= 70; id += 1) await create(id);
    assertNames(await ask('GET', '/plants', writer), 200);
    assertNames(await ask('GET', '/plants?limit=1', writer), 200, 'Link');
    assertNames(await ask('GET', '/plants'), 401, 'WWW-Authenticate');
    assertNames(await ask('DELETE', '/plants/1', reader), 403, 'WWW-Authenticate');
    assertNames(await ask('PUT', '/plants', writer), 405, 'Allow');
    assertNames(await sendRaw(url, 'GET /plants HTTP/1.1\r\nHost : a\r\n\r\n'), 400);
  });

  test(`common headers: once each, /docs overrides one, Keep-Alive while open, on ${engine.name}`, async (t) => {
    const { url, token } = await startService(t, await engine.freshUrl(t), { keepAliveTimeout: '9000' });
    const authorization = `Bearer ${await token()}`;
    for (const [path, caching] of [
      ['/plants?limit=0', 'no-store'],
      ['/plants', 'no-store'],
      ['/docs', 'no-cache'],
    ] as const) {
      const open = await fetch(`${url}${path}`, { headers: { authorization } });
      await open.arrayBuffer();
      assert.equal(open.headers.get('cache-control'), caching);
      assert.equal(open.headers.get('keep-alive'), 'timeout=9', path);
      const closed = await sendRequest(url, {
        method: 'GET',
        path,
        headers: [['Authorization', authorization]],
      });
      assert.equal(headerOf(closed.headers, 'connection'), 'close');
      assert.equal(headerOf(closed.headers, 'keep-alive'), undefined, path);
    }
    for (const request of [
      `HEAD /plants HTTP/1.0\r\nConnection: keep-alive\r\nAuthorization: ${authorization}\r\n\r\n`,
      'POST /nowhere HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}',
    ]) {
      const { headers } = await sendRaw(url, request);
      assert.equal(headerOf(headers, 'connection'), 'close', request);
      assert.equal(headerOf(headers, 'keep-alive'), undefined, request);
    }
  });
}
