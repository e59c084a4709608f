import assert from 'node:assert/strict';
import { describe, it, type TestContext, test } from 'node:test';
import type { FastifyInstance } from 'fastify';
import { Gauge, Registry } from 'prom-client';
import { loadConfig } from '../../src/config.ts';
import { createAdmin, type ReadinessCheck } from '../../src/http/admin.ts';
import { ConnectionRegistry } from '../../src/http/protocol/connection/connection-registry.ts';
import { logTo } from '../../src/observability/log.ts';
import type { EventLog } from '../../src/observability/log-events.ts';
import { Connection } from '../support/clients/keep-alive-client.ts';
import { headerOf, renderRequest, sendRaw } from '../support/clients/raw-http.ts';
import { sqlite } from '../support/engines.ts';
import { until } from '../support/patience.ts';
import { newInstallation } from '../support/program.ts';
import { startService } from '../support/service.ts';

const HOST = 'Host: plants.test\r\nConnection: close\r\n';

/** Requests that the admin listener must reject. */
const rejections: readonly (readonly [
  what: string,
  message: string | Buffer,
  status: number,
  code: number,
])[] = [
  ['an unknown path', `GET /plants HTTP/1.1\r\n${HOST}\r\n`, 404, 40401],
  ['a method that is not allowed', `PROPFIND /live HTTP/1.1\r\n${HOST}\r\n`, 405, 40500],
  [
    'a body that is not JSON',
    renderRequest({
      method: 'POST',
      path: '/live',
      headers: [['Content-Type', 'application/json']],
      body: '{',
    }),
    405,
    40500,
  ],
  ['not HTTP', 'how are you?\r\n\r\n', 400, 40004],
  ['a header without a name', `GET /live HTTP/1.1\r\n${HOST}: x\r\n\r\n`, 400, 40004],
  ['a request without Host', 'GET /live HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 40004],
  ['invalid percent-encoding in the path', `GET /%zz HTTP/1.1\r\n${HOST}\r\n`, 400, 40004],
  ['another version of HTTP', `GET /live HTTP/2.0\r\n${HOST}\r\n`, 400, 40004],
  ['an unsupported expectation', `GET /live HTTP/1.1\r\n${HOST}Expect: tea\r\n\r\n`, 417, 41700],
  ['headers above the limit', `GET /live HTTP/1.1\r\n${HOST}X: ${'x'.repeat(20_000)}\r\n\r\n`, 431, 43100],
  [
    'a malformed chunk, to an unknown path',
    `GET /plants HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\nz\r\n`,
    400,
    40004,
  ],
  ['a URI above the limit', `GET /live?${'x'.repeat(9_000)} HTTP/1.1\r\n${HOST}\r\n`, 414, 41400],
  ['a proxy request', `CONNECT plants.test:80 HTTP/1.1\r\n${HOST}\r\n`, 404, 40401],
];

test('admin listener: rejected request → error body and headers as on the public listener', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  for (const [what, message, status, code] of rejections) {
    await t.test(what, async () => {
      const answer = await sendRaw(service.adminUrl, message);
      const { error, message: text, ...others } = JSON.parse(answer.body.toString());
      assert.deepEqual([answer.status, error, others], [status, code, {}]);
      assert.equal(typeof text, 'string');
      assert.equal(headerOf(answer.headers, 'content-type'), 'application/json');
      assert.equal(headerOf(answer.headers, 'cache-control'), 'no-store');
      assert.match(headerOf(answer.headers, 'x-request-id') ?? '', /^[0-9a-f]{12}-[0-9a-z]+$/);
    });
  }
});

function adminOf(
  t: TestContext,
  registry: Registry,
  log: EventLog,
  checks: readonly ReadinessCheck[] = [],
): FastifyInstance {
  const limits = loadConfig({}, {});
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const admin = createAdmin({ registry, checks, limits, connections, log });
  t.after(async () => {
    connections.destroy();
    await admin.close();
  });
  return admin;
}

test('admin listener: error while rendering /metrics → 50000, logged under the request id', async (t) => {
  const registry = new Registry();
  new Gauge({
    name: 'broken',
    help: 'Fails to collect.',
    registers: [registry],
    collect: () => assert.fail('out of order'),
  });
  const lines: string[] = [];
  const { log } = logTo({ write: (line) => void lines.push(line) }, 'info');
  const admin = adminOf(t, registry, log);
  const answer = await fetch(`${await admin.listen({ port: 0 })}/metrics`);
  assert.match(await answer.text(), /^\{"error":50000,/);
  const [{ msg, requestId, err } = {}, ...others] = lines.map((line) => JSON.parse(line));
  assert.deepEqual([msg, requestId, others], ['failed', answer.headers.get('x-request-id'), []]);
  assert.match(err.stack, /out of order/);
});

test('check of /ready that never ends → 503, and the next check counts', async (t) => {
  let checks = 0;
  const check = async (): Promise<void> => {
    checks += 1;
    if (checks === 1) await new Promise(() => undefined);
  };
  const { log } = logTo({ write: () => undefined }, 'info');
  const admin = adminOf(t, new Registry(), log, [{ name: 'store', check }]);
  const url = `${await admin.listen({ port: 0 })}/ready`;
  assert.equal((await fetch(url)).status, 503);
  await until(async () => (await fetch(url)).status === 200);
  assert.equal(checks, 2);
});

test('metrics: 200 scrapes → all get a response, 10 a second are rendered', async (t) => {
  const registry = new Registry();
  let rendered = 0;
  new Gauge({
    name: 'renderings',
    help: 'Renderings so far.',
    registers: [registry],
    collect() {
      rendered += 1;
      this.set(rendered);
    },
  });
  const { log } = logTo({ write: () => undefined }, 'info');
  const admin = adminOf(t, registry, log);
  const url = `${await admin.listen({ port: 0 })}/metrics`;
  const begun = performance.now();
  for (let scrapes = 0; scrapes < 200; scrapes += 1)
    assert.match(await (await fetch(url)).text(), /^renderings \d+$/m);
  const seconds = Math.ceil((performance.now() - begun) / 1_000);
  assert.ok(rendered >= 10 && rendered <= 10 * (seconds + 1), `${rendered} in ${seconds} s`);
});

test('admin listener: absolute URL → 200', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  const { status } = await sendRaw(service.adminUrl, `GET http://plants.test/live HTTP/1.1\r\n${HOST}\r\n`);
  assert.equal(status, 200);
});

describe('admin listener of the program', () => {
  it('/live, /ready and /metrics → 200; 40401 on the public port', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({ env: { NODE_ENV: 'production' } });
    assert.notEqual(service.adminUrl, service.url);
    for (const path of ['/live', '/ready', '/metrics']) {
      const inside = await fetch(service.adminUrl + path);
      assert.equal(inside.status, 200);
      if (path !== '/metrics') assert.equal(inside.headers.get('content-type'), 'application/json');
      assert.notEqual(await inside.text(), '');
      const outside = await fetch(service.url + path);
      assert.equal(outside.status, 404);
      const body: unknown = await outside.json();
      assert.equal(Reflect.get(Object(body), 'error'), 40401);
    }
    for (const path of ['/plants', '/openapi.json', '/']) {
      const response = await fetch(service.adminUrl + path);
      assert.equal(response.status, 404);
      await response.arrayBuffer();
    }
  });

  it('responses are counted in its metrics', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: { NODE_ENV: 'production' } });
    const connection = new Connection(service.url, token);
    for (let id = 1n; id <= 3n; id += 1n) await connection.create(id, { name: 'Alder', tag: null });
    connection.close();
    await service.wrote(() => service.log.filter(({ operation }) => operation === 'createPlant')[2]);
    const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
    assert.match(metrics, /_duration_seconds_count\{operation="createPlant",status="200"\} 3\n/);
  });
});

test('listeners on all addresses, without TLS → a warning for each', async (t) => {
  const settings = { host: '0.0.0.0', adminHost: '0.0.0.0' };
  const service = await startService(t, await sqlite.freshUrl(t), settings);
  const lines = service.logLines.map((line) => JSON.parse(line));
  // The machine may cause others.
  const warnings = lines.filter(({ level, host }) => level === 40 && host !== undefined);
  assert.deepEqual(
    warnings.map(({ msg, host }) => [msg, host]),
    [
      ['plain HTTP on a non-loopback address; use TLS or a proxy with TLS', '0.0.0.0'],
      ['the admin listener has no authentication; restrict access to it', '0.0.0.0'],
    ],
  );
});
