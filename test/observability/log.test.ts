import assert from 'node:assert/strict';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { describe, it, test } from 'node:test';
import { type AnsweredRequest, logTo } from '../../src/observability/log.ts';
import { BUFFER_LIMITS, createLogWriter } from '../../src/observability/log-writer.ts';
import { StoreUnavailable } from '../../src/store/store.ts';
import { sendRaw } from '../support/clients/raw-http.ts';
import { until } from '../support/patience.ts';
import { newInstallation } from '../support/program.ts';
import { bearer } from '../support/service.ts';

const request: AnsweredRequest = {
  requestId: 'AbC-_9-1z',
  traceId: undefined,
  operation: 'createPlant',
  status: 200,
  error: undefined,
  limit: undefined,
  ms: 1.25,
  replayed: undefined,
  owner: 'alice',
  token: 'h14aeWxMWUHr',
};
const requests: readonly (readonly [what: string, request: AnsweredRequest])[] = [
  ['a request', request],
  [
    'a request without an owner',
    { ...request, status: 401, error: 40101, owner: undefined, token: undefined },
  ],
  ['a request with a token of the identity provider', { ...request, token: undefined }],
  ['a traced request', { ...request, traceId: '0af7651916cd43dd8448eb211c80319c' }],
  ['a request above the share of its owner', { ...request, status: 503, error: 50301, limit: 'owner' }],
  ['a replay', { ...request, replayed: true }],
  ['a request of 0 ms', { ...request, ms: 0 }],
  ['a long request', { ...request, ms: 15_000.01 }],
  ['a request whose owner needs escapes', { ...request, owner: 'https://a.b/ "c\\d"\n\u2028é\u{1f331}' }],
];

for (const [what, one] of requests) {
  test(`line of ${what} → identical to the line of pino`, (t) => {
    t.mock.timers.enable({ apis: ['Date'], now: 1_763_719_200_123 });
    const lines: string[] = [];
    const { log, answered } = logTo({ write: (line) => void lines.push(line) }, 'info');
    answered(one);
    log.event('answered', one);
    assert.equal(lines.length, 2);
    assert.equal(lines[0], lines[1]);
  });
}

test('error with a cause → the message of the cause is there once', () => {
  const lines: string[] = [];
  const { log } = logTo({ write: (line) => void lines.push(line) }, 'warn');
  const cause = new Error('no route');
  for (const err of [new Error('no connection: no route', { cause }), new Error('no connection', { cause })])
    log.event('the last use of a token was not recorded', { err });
  const messages = lines.map((line) => JSON.parse(line).err.message);
  assert.deepEqual(messages, ['no connection: no route', 'no connection: no route']);
});

test('error with a message for the operator → no stack', () => {
  const lines: string[] = [];
  const { log } = logTo({ write: (line) => void lines.push(line) }, 'warn');
  const cause = new Error('no space');
  for (const err of [new StoreUnavailable('the store failed: no space', { cause }), cause])
    log.event('the last use of a token was not recorded', { err });
  const [ofOperator, other] = lines.map((line) => JSON.parse(line).err);
  assert.deepEqual([ofOperator.message, ofOperator.stack], ['the store failed: no space', undefined]);
  assert.deepEqual([other.message, other.stack], ['no space', cause.stack]);
  const bug = new StoreUnavailable('the store is closed');
  log.event('unexpected error; stopping', { err: bug });
  assert.equal(JSON.parse(lines.at(-1) ?? '').err.stack, bug.stack);
});

test('log level above info → no lines of requests', () => {
  const lines: string[] = [];
  const { log, answered } = logTo({ write: (line) => void lines.push(line) }, 'warn');
  answered(request);
  log.event('traces could not be sent; check the OpenTelemetry collector', {
    problem: 'a problem',
    spans: 1,
  });
  assert.equal(lines.length, 1);
});

for (const level of ['trace', 'info', 'warn', 'error', 'fatal', 'silent'])
  test(`log level ${level} → ${level === 'silent' ? 'no' : 'all'} lines of the audit`, () => {
    const lines: string[] = [];
    const { log } = logTo({ write: (line, kind) => void lines.push(`${kind} ${line}`) }, level);
    log.event('a token was revoked', { audit: 'tokenRevoked', token: 'AbC' });
    const [line = ''] = lines;
    assert.equal(lines.length, level === 'silent' ? 0 : 1);
    if (level !== 'silent')
      assert.match(line, /^other \{"level":30,"time":"[^"]+","audit":"tokenRevoked","token":"AbC",/);
  });

test('output fails, is written again and fails again → reported each time; dropped lines are counted once', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { mock: stderr } = t.mock.method(process.stderr, 'write', () => true);
  let isFull = true;
  t.mock.method(fs, 'writeSync', (_file: number, bytes: Buffer) => {
    if (isFull) throw new Error('no space');
    return bytes.length;
  });
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  const dropped: number[] = [];
  const onDropped = (lines: number): void => void dropped.push(lines);
  const writer = createLogWriter({ isTerminal: false, minWrite: 0, onDropped });
  const line = 'x'.repeat(BUFFER_LIMITS.request);
  for (const round of [1, 2]) {
    isFull = true;
    // The first two fill the buffer.
    for (let lines = 0; lines < 5; lines += 1) writer.write(line, 'request');
    t.mock.timers.tick(3_000);
    isFull = false;
    t.mock.timers.tick(3_000);
    assert.deepEqual(dropped, [3, 3].slice(0, round));
    assert.equal(stderr.callCount(), round);
  }
});

describe('the log of a service', () => {
  it('its reader ends → one message with the remedy, and the service goes on', async (t) => {
    const installation = await newInstallation(t);
    await installation.token();
    const service = await installation.serve({
      // Passes the first line on, which names the ports.
      wrap: (command) => ['bash', '-c', 'exec "$@" > >(head -n 1)', 'bash', ...command],
    });
    await until(async () => {
      assert.equal((await fetch(`${service.url}/plants`)).status, 401);
      return service.output.stderr !== '';
    });
    assert.equal((await fetch(`${service.url}/plants`)).status, 401);
    assert.equal(
      service.output.stderr,
      'plant-store: the log cannot be written: the program that read it has ended; restart the service with it\n',
    );
  });

  it('every request → a JSON line with time, level and response', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: { NODE_ENV: 'production' } });
    const headers = bearer(token);
    const writer = await installation.token('alice', '--scope', 'plants:write', '--name', 'writer');
    const listed: readonly { id: string; name: string }[] = JSON.parse(
      (await installation.run(['token', 'list', '--json'])).stdout,
    );
    const ids = Object.fromEntries(listed.map(({ id, name }) => [name || 'both', id]));
    const json = { ...headers, 'content-type': 'application/json' };
    const requests: readonly {
      path: string;
      init: RequestInit;
      status: number;
      error?: number;
      operation: string;
      replayed?: true;
      owner?: string;
      id?: string | undefined;
    }[] = [
      {
        path: '/plants',
        init: { method: 'POST', headers: json, body: '{"id":1,"name":"Alder"}' },
        status: 200,
        operation: 'createPlant',
        owner: 'alice',
      },
      ...[{}, { replayed: true as const }].map((again) => ({
        path: '/plants',
        init: { method: 'POST', headers: { ...json, 'idempotency-key': 'k' }, body: '{"id":2,"name":"Ash"}' },
        status: 200,
        operation: 'createPlant',
        ...again,
        owner: 'alice',
      })),
      {
        path: '/plants',
        init: { method: 'POST', headers: json, body: '{' },
        status: 400,
        error: 40001,
        operation: 'createPlant',
        owner: 'alice',
      },
      { path: '/plants?limit=1', init: { headers }, status: 200, operation: 'listPlants', owner: 'alice' },
      {
        path: '/plants',
        init: { headers: bearer(writer) },
        status: 403,
        error: 40300,
        operation: 'listPlants',
        owner: 'alice',
        id: ids.writer,
      },
      { path: '/plants', init: {}, status: 401, error: 40100, operation: 'listPlants' },
      {
        path: '/plants/1',
        init: { method: 'DELETE', headers },
        status: 204,
        operation: 'deletePlant',
        owner: 'alice',
      },
      {
        path: '/plants/1',
        init: { method: 'DELETE', headers },
        status: 404,
        error: 40400,
        operation: 'deletePlant',
        owner: 'alice',
      },
      { path: '/openapi.json', init: {}, status: 200, operation: 'openapi' },
      { path: '/docs', init: {}, status: 200, operation: 'docs' },
      { path: '/nothing', init: {}, status: 404, error: 40401, operation: 'none' },
    ];
    for (const { path, init, status, error, operation, replayed, owner, id = ids.both } of requests) {
      const response = await fetch(service.url + path, init);
      await response.arrayBuffer();
      assert.equal(response.status, status);
      const requestId = response.headers.get('x-request-id');
      const line = await service.logged((one) => one.requestId === requestId && one.msg === 'answered');
      const { level, time, ms, ...rest } = line;
      const expected = {
        requestId,
        operation,
        status,
        ...(error === undefined ? {} : { error }),
        ...(replayed === undefined ? {} : { replayed }),
        ...(owner === undefined ? {} : { owner, token: id }),
        msg: 'answered',
      };
      assert.deepEqual(rest, expected);
      assert.equal(level, 30);
      assert.ok(typeof ms === 'number' && ms >= 0 && ms < 60_000);
      assert.ok(Math.abs(Date.now() - Date.parse(String(time))) < 60_000);
    }
    assert.equal((await sendRaw(service.url, 'GET\r\n\r\n')).status, 400);
    const { level, time, requestId, ...rejection } = await service.logged(({ msg }) => msg === 'rejected');
    assert.deepEqual(rejection, { operation: 'none', status: 400, error: 40004, msg: 'rejected' });
    await service.stop();
    for (const line of service.output.stdout.trimEnd().split('\n')) {
      const parsed: Record<string, unknown> = JSON.parse(line);
      assert.match(String(parsed.time), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      assert.equal(typeof parsed.level, 'number');
    }
    assert.equal(service.output.stderr, '');
  });
});
