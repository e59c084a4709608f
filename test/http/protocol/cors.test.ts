import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { ErrorHeaders } from '../../../src/api-errors.ts';
import { operations } from '../../../src/http/app.ts';
import { renderOpenApi } from '../../../src/http/openapi.ts';
import { headerOf, type RawAnswer, sendRaw, sendRequest } from '../../support/clients/raw-http.ts';
import { sqlite } from '../../support/engines.ts';
import { bearer, startService } from '../../support/service.ts';

const PAGE = 'https://plants.example';
const PREFLIGHT = {
  'access-control-request-method': 'POST',
  'access-control-request-headers': 'authorization,content-type,idempotency-key,traceparent,tracestate',
};

/** True for the headers of errors that the OpenAPI document has; `Allow` belongs to no operation. */
const ERROR_HEADERS: Readonly<Record<keyof ErrorHeaders, boolean>> = {
  allow: false,
  connection: false,
  'retry-after': true,
  'www-authenticate': true,
};

describe('CORS: page of another origin', () => {
  it('CORS off → no CORS headers', async (t) => {
    const { url } = await startService(t, await sqlite.freshUrl(t));
    for (const answer of [
      await ask(url, 'OPTIONS', '/plants', { origin: PAGE, ...PREFLIGHT }),
      await ask(url, 'GET', '/plants', { origin: PAGE }),
    ]) {
      assert.deepEqual(corsOf(answer), {});
      assert.equal(headerOf(answer.headers, 'vary'), undefined);
    }
  });

  it('allowed origin, preflight without a token → 204 with methods and headers', async (t) => {
    const { url } = await startService(t, await sqlite.freshUrl(t), { corsOrigin: `http://a.test,${PAGE}` });
    for (const path of ['/plants', '/plants/7']) {
      const answer = await ask(url, 'OPTIONS', path, { origin: PAGE, ...PREFLIGHT });
      assert.equal(answer.status, 204);
      assert.deepEqual(corsOf(answer), {
        'access-control-allow-origin': PAGE,
        'access-control-allow-methods': 'GET, HEAD, POST, DELETE',
        'access-control-allow-headers':
          'Authorization, Content-Type, Idempotency-Key, traceparent, tracestate',
        'access-control-max-age': '7200',
      });
      assert.equal(headerOf(answer.headers, 'vary'), 'Origin');
    }
  });

  it('allowed origin → may read every response, errors included, with its headers', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t), { corsOrigin: PAGE });
    const token = bearer(await service.token());
    for (const [method, path, headers, status] of [
      ['GET', '/plants', token, 200],
      ['DELETE', '/plants/7', token, 404],
      ['GET', '/plants', {}, 401],
      ['GET', '/nothing', {}, 404],
      ['GET', '/plants/%', {}, 400],
      ['PUT', '/plants', {}, 405],
      ['POST', '/plants', token, 400],
    ] as const) {
      const answer = await ask(service.url, method, path, { ...headers, origin: PAGE });
      assert.equal(answer.status, status);
      assert.equal(headerOf(answer.headers, 'access-control-allow-origin'), PAGE);
      const exposed = headerOf(answer.headers, 'access-control-expose-headers')?.split(', ') ?? [];
      for (const name of ['Link', 'Idempotent-Replayed', 'Retry-After', 'X-Request-Id', 'WWW-Authenticate'])
        assert.ok(exposed.includes(name), name);
    }
  });

  it('methods and headers → exactly those of the OpenAPI document, and those of W3C Trace Context', async (t) => {
    const { url } = await startService(t, await sqlite.freshUrl(t), { corsOrigin: '*' });
    const preflight = corsOf(await ask(url, 'OPTIONS', '/plants', { origin: PAGE, ...PREFLIGHT }));
    const response = corsOf(await ask(url, 'GET', '/plants', { origin: PAGE }));
    const document: Document = JSON.parse(renderOpenApi(operations, ''));
    const described = Object.values(document.paths).flatMap((path) => Object.values(path));
    const parameters = described.flatMap((operation) => operation.parameters);
    const methods = ['HEAD', ...operations.map(({ method }) => method)];
    assertList(preflight['access-control-allow-methods'], methods);
    assertList(preflight['access-control-allow-headers'], [
      'Authorization',
      'Content-Type',
      'traceparent',
      'tracestate',
      ...parameters.filter((parameter) => parameter.in === 'header').map(({ name }) => name),
    ]);
    const documented = described.flatMap(({ responses }) =>
      Object.values(responses).flatMap(({ headers }) => Object.keys(headers)),
    );
    assertList(response['access-control-expose-headers'], ['Allow', ...documented]);
    for (const [name, isDocumented] of Object.entries(ERROR_HEADERS))
      assert.equal(documented.map((one) => one.toLowerCase()).includes(name), isDocumented, name);
    const all = await ask(url, 'OPTIONS', '*', {});
    assertList(headerOf(all.headers, 'allow'), [...methods, 'OPTIONS']);
  });

  it('other origin → no CORS headers, but Vary: Origin', async (t) => {
    const { url } = await startService(t, await sqlite.freshUrl(t), { corsOrigin: PAGE });
    for (const origin of ['https://evil.example', `${PAGE}.evil.example`, 'http://plants.example', 'null']) {
      const answer = await ask(url, 'OPTIONS', '/plants', { origin, ...PREFLIGHT });
      assert.deepEqual(corsOf(answer), {});
      assert.equal(headerOf(answer.headers, 'vary'), 'Origin');
    }
    assert.equal(headerOf((await ask(url, 'GET', '/plants', {})).headers, 'vary'), 'Origin');
  });

  it('* → any origin, without credentials', async (t) => {
    const { url } = await startService(t, await sqlite.freshUrl(t), { corsOrigin: '*' });
    const answer = await ask(url, 'GET', '/plants', { origin: 'null', cookie: 'token=1' });
    assert.equal(answer.status, 401);
    assert.equal(headerOf(answer.headers, 'access-control-allow-origin'), '*');
    assert.equal(headerOf(answer.headers, 'access-control-allow-credentials'), undefined);
    assert.equal(headerOf(answer.headers, 'vary'), undefined);
  });

  it('malformed HTTP, whose Origin is unknown → CORS headers if they fit any request', async (t) => {
    for (const [corsOrigin, allowed, vary] of [
      ['*', '*', undefined],
      [PAGE, PAGE, 'Origin'],
      [`${PAGE},https://other.example`, undefined, undefined],
      ['', undefined, undefined],
    ] as const) {
      const { url } = await startService(t, await sqlite.freshUrl(t), { corsOrigin });
      const answer = await sendRaw(url, `GET /plants HTTP/1.1\r\nOrigin: ${PAGE}\r\n: x\r\n\r\n`);
      assert.equal(answer.status, 400);
      assert.equal(headerOf(answer.headers, 'access-control-allow-origin'), allowed);
      assert.equal(headerOf(answer.headers, 'vary'), vary);
      const exposed = headerOf(answer.headers, 'access-control-expose-headers')?.split(', ') ?? [];
      assert.equal(exposed.includes('X-Request-Id'), allowed !== undefined);
    }
  });
});

/** The part of an OpenAPI document that CORS depends on. */
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, OperationObject>>>>;
}

interface OperationObject {
  readonly parameters: readonly { readonly in: string; readonly name: string }[];
  readonly responses: Readonly<Record<string, { readonly headers: Readonly<Record<string, unknown>> }>>;
}

function assertList(header: string | undefined, expected: readonly string[]): void {
  assert.deepEqual(header?.split(', ').sort(), [...new Set(expected)].sort());
}

function ask(
  url: string,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
): Promise<RawAnswer> {
  return sendRequest(url, { method, path, headers: Object.entries(headers) });
}

function corsOf({ headers }: RawAnswer): Record<string, string> {
  return Object.fromEntries(
    headers
      .map(([name, value]) => [name.toLowerCase(), value] as const)
      .filter(([name]) => name.startsWith('access-control-')),
  );
}
