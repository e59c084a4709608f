import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, type TestContext, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Setting } from '../../../src/config.ts';
import { BODY_MEMORY_BYTES, MIN_LARGEST_BODIES } from '../../../src/http/overload/body-memory.ts';
import { BASE_PIECES, BYTES_PER_PIECE } from '../../../src/http/protocol/connection/message-framing.ts';
import { UNCOUNTED_BYTES } from '../../../src/http/protocol/request-body.ts';
import { openWire, type Wire } from '../../support/clients/raw-connection.ts';
import {
  headerOf,
  type RawAnswer,
  renderRequest,
  sendRaw,
  sendRequest,
} from '../../support/clients/raw-http.ts';
import { engines, sqlite } from '../../support/engines.ts';
import { holdWrites } from '../../support/faults/hold-writes.ts';
import { countSeconds, PATIENCE_MS, until } from '../../support/patience.ts';
import { bearer, startService, type TestService } from '../../support/service.ts';
import { create as createPlant } from '../../support/store-setup.ts';

const CERTIFICATES = fileURLToPath(new URL('../../support/certificates/', import.meta.url));
const HEAD = 'GET /openapi.json HTTP/1.1\r\nHost: plants.test\r\n';
const GET = { method: 'GET', path: '/openapi.json' };
const CHUNKED_HEAD =
  'OPTIONS /plants HTTP/1.1\r\nHost: plants.test\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n';

test('headers, URI or body above the configured size → 43100, 41400, 41300', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), {
    headerLimit: '2048',
    uriLimit: '256',
    bodyLimit: '1024',
  });
  const json = { ...bearer(await service.token()), 'content-type': 'application/json' };
  const ask = async (request: Partial<typeof GET>, headers: Record<string, string> = {}, body?: string) => {
    const raw = await sendRequest(service.url, {
      ...GET,
      ...request,
      headers: Object.entries(headers),
      body,
    });
    return [raw.status, JSON.parse(raw.body.toString()).error];
  };
  const plant = (bytes: number): string => '{"id":1,"name":"x"}'.padEnd(bytes);
  const list = (length: number) => ({ path: `/plants?limit=1&${'x'.repeat(length - 16)}` });
  assert.deepEqual(await ask({}, { 'x-filler': 'x'.repeat(1_800) }), [200, undefined]);
  assert.deepEqual(await ask({}, { 'x-filler': 'x'.repeat(2_048) }), [431, 43100]);
  assert.deepEqual(await ask(list(256), json), [200, undefined]);
  assert.deepEqual(await ask(list(257), json), [414, 41400]);
  const absolute = (length: number) => ({ path: `http://plants.test${list(length - 18).path}` });
  assert.deepEqual(await ask(absolute(256), json), [200, undefined]);
  assert.deepEqual(await ask(absolute(257), json), [414, 41400]);
  assert.deepEqual(await ask({ method: 'POST', path: '/plants' }, json, plant(1_024)), [200, undefined]);
  assert.deepEqual(await ask({ method: 'POST', path: '/plants' }, json, plant(1_025)), [413, 41300]);
});

test('body above the limit → connection closed, even if all of it has arrived', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), { bodyLimit: '1024' });
  const wire = openWire(service.url);
  t.after(() => wire.destroy());
  const fields = `Authorization: Bearer ${await service.token()}\r\nContent-Type: application/json\r\n`;
  wire.send(
    `POST /plants HTTP/1.1\r\nHost: plants.test\r\n${fields}Content-Length: 1025\r\n\r\n${' '.repeat(1_025)}`,
  );
  assert.equal((await wire.answer())?.status, 413);
  assert.equal(await wire.answer(), undefined);
});

describe('bodies that arrive in parts', () => {
  const LENGTH = 65_536;
  const LAST = '}'.padEnd(20);
  /** More of them than the limit on their memory allows. */
  const TOO_MANY = Math.ceil(BODY_MEMORY_BYTES / (LENGTH - UNCOUNTED_BYTES)) + 1;

  async function openSenders(t: TestContext, flags: Partial<Record<Setting, string>> = {}) {
    const service = await startService(t, await sqlite.freshUrl(t), {
      requestTimeout: String(PATIENCE_MS),
      ...flags,
    });
    const tokens = { alice: await service.token('alice'), bob: await service.token('bob') };
    const wires: Wire[] = [];
    const closeAll = (): void => {
      for (const wire of wires) wire.destroy();
    };
    t.after(closeAll);

    /** Sends a request without the last bytes of its body. */
    function begin(
      target: string,
      bytes: number,
      { unsent = LAST.length, owner = 'alice' }: { unsent?: number; owner?: keyof typeof tokens } = {},
    ): Wire {
      const wire = openWire(service.url);
      const fields = `Authorization: Bearer ${tokens[owner]}\r\nContent-Type: application/json\r\nContent-Length: ${bytes}`;
      wire.send(`${target} HTTP/1.1\r\nHost: plants.test\r\n${fields}\r\n\r\n{"id":${wires.length},`);
      wire.send('"name":"x"'.padEnd(bytes - unsent - `{"id":${wires.length},`.length));
      wires.push(wire);
      return wire;
    }

    async function create(bytes: number, owner: keyof typeof tokens = 'alice'): Promise<number | undefined> {
      const wire = begin('POST /plants', bytes, { owner });
      wire.send(LAST);
      return (await wire.answer())?.status;
    }

    return { begin, create, closeAll };
  }

  test('above the limits on their memory → 50301; small ones are accepted, and later large ones', async (t) => {
    const { begin, create, closeAll } = await openSenders(t);
    const answers: Promise<RawAnswer | undefined>[] = [];
    /** Sends bodies until one is rejected. Resolves to the message. */
    async function fill(owner: 'alice' | 'bob'): Promise<string> {
      const begun = Array.from({ length: TOO_MANY }, () => begin('POST /plants', LENGTH, { owner }).answer());
      answers.push(...begun);
      const rejected = (await Promise.race(begun)) ?? assert.fail('closed without a response');
      assert.equal(rejected.status, 503);
      assert.equal(headerOf(rejected.headers, 'connection'), 'close');
      assert.equal(headerOf(rejected.headers, 'retry-after'), '1');
      const { error, message } = JSON.parse(String(rejected.body));
      assert.equal(error, 50301);
      return message;
    }

    assert.match(await fill('alice'), /of this owner/);
    assert.equal(await create(LENGTH, 'bob'), 200);
    assert.match(await fill('bob'), /^request bodies use too much memory/);
    for (const owner of ['alice', 'bob'] as const) assert.equal(await create(100, owner), 200);
    closeAll();
    await Promise.allSettled(answers);
    await until(async () => (await create(LENGTH)) === 200);
  });

  test('of nearly the max size → three of an owner are accepted at once', async (t) => {
    const largest = 8 * 1024 * 1024;
    const { begin } = await openSenders(t, { bodyLimit: String(largest) });
    const wires = Array.from({ length: 3 }, () => begin('POST /plants', largest - 1_000));
    for (const wire of wires) wire.send(LAST);
    for (const wire of wires) assert.equal((await wire.answer())?.status, 200);
  });

  test('of nearly the max size, one after the other → their memory is free again, and all are accepted', async (t) => {
    const largest = 8 * 1024 * 1024;
    const { create } = await openSenders(t, { bodyLimit: String(largest) });
    for (let number = 0; number < MIN_LARGEST_BODIES; number += 1)
      assert.equal(await create(largest - 1_000), 200);
  });

  test('that no operation reads → not kept: any number of them', async (t) => {
    const { begin } = await openSenders(t);
    const wires = Array.from({ length: TOO_MANY }, () => begin('OPTIONS /plants', LENGTH));
    for (const wire of wires) wire.send(LAST);
    for (const wire of wires) assert.equal((await wire.answer())?.status, 204);
  });

  test('in any number of parts → accepted, if the length is given', async (t) => {
    const { begin } = await openSenders(t);
    const wire = begin('POST /plants', 1_000, { unsent: 900 });
    await sendInParts(wire, LAST.padEnd(900), 1);
    assert.equal((await wire.answer())?.status, 200);
  });
});

/** Sends text in parts of `size` bytes, each of which the service reads before the next one is sent. */
async function sendInParts(wire: Wire, text: string, size: number): Promise<void> {
  for (let at = 0; at < text.length; at += size) {
    wire.send(text.slice(at, at + size));
    await nextTurn();
  }
}

describe('chunked body → the same response, however the network divides it', () => {
  const chunksOf = (count: number, bytes: number): string =>
    `${bytes.toString(16)}\r\n${' '.repeat(bytes)}\r\n`.repeat(count);
  const HEADER_LIMIT = 1_024;
  const line = (bytes: number): string => `1;${'x'.repeat(bytes - '1;\r\n'.length)}\r\n \r\n`;
  const cases: readonly (readonly [about: string, chunks: string, status: number])[] = [
    ['one chunk', chunksOf(1, 5_000), 204],
    ['the max number of chunks', chunksOf(BASE_PIECES, 1), 204],
    ['more chunks than that', chunksOf(BASE_PIECES + 10, 1), 413],
    ['more chunks than that, then a large one', chunksOf(BASE_PIECES + 10, 1) + chunksOf(1, 20_000), 413],
    ['as many more as their bytes allow', chunksOf(2 * BASE_PIECES, BYTES_PER_PIECE / 2), 204],
    ['a chunk line of the max length', line(HEADER_LIMIT), 204],
    ['a chunk line above it', line(HEADER_LIMIT + 1), 413],
  ];
  for (const [about, chunks, status] of cases)
    test(`${about} → ${status}`, async (t) => {
      const service = await startService(t, await sqlite.freshUrl(t), {
        requestTimeout: String(PATIENCE_MS),
        headerLimit: String(HEADER_LIMIT),
      });
      for (const size of [7, 1_000, 1_448, chunks.length]) {
        const wire = openWire(service.url);
        t.after(() => wire.destroy());
        wire.send(CHUNKED_HEAD);
        await sendInParts(wire, `${chunks}0\r\n\r\n`, size);
        assert.equal((await wire.answer())?.status, status, `in parts of ${size} bytes`);
      }
    });

  test('malformed chunk line, with Upgrade → 40004', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t));
    for (const malformed of ['4\t', '4 ', '4;\u0001', '4;a=\u0001'])
      for (const size of [1, 2, 3, 4, 40]) {
        const wire = openWire(service.url);
        t.after(() => wire.destroy());
        wire.send(CHUNKED_HEAD.replace('\r\n', '\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n'));
        await sendInParts(wire, `${malformed}\r\n    \r\n0\r\n\r\n`, size);
        const answer = await wire.answer();
        assert.match(String(answer?.body), /"error":40004/, `${malformed}, in parts of ${size} bytes`);
      }
  });

  test('text, with the trailer Connection → 40004, also if the body comes later', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t));
    const head = CHUNKED_HEAD.replace('application/json', 'text/plain');
    const body = '1\r\nx\r\n0\r\nConnection: close\r\n\r\n';
    for (const parts of [[head + body], [head, body]]) {
      const wire = openWire(service.url);
      t.after(() => wire.destroy());
      // An answered request shows that the connection is open.
      wire.send('GET / HTTP/1.1\r\nHost: plants.test\r\n\r\n');
      assert.equal((await wire.answer())?.status, 404);
      await nextTurn();
      for (const part of parts) await sendInParts(wire, part, part.length);
      const answer = await wire.answer();
      assert.match(String(answer?.body), /"error":40004/);
      assert.equal(headerOf(answer?.headers ?? [], 'connection'), 'close');
    }
  });
});

test('more chunked bodies on a connection than chunks that one may have → accepted', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  const wire = openWire(service.url);
  t.after(() => wire.destroy());
  for (let sent = 0; sent <= BASE_PIECES; sent += 1) {
    wire.send(`${CHUNKED_HEAD}1\r\n \r\n0\r\n\r\n`);
    assert.equal((await wire.answer())?.status, 204);
  }
});

const TLS_HEAD =
  'OPTIONS /plants HTTP/1.1\r\nHost: plants.test\r\nContent-Type: application/json\r\nContent-Length: 65536\r\n';

/**
 * Opens a TLS connection to a service, on which each text is sent in a record. `received` returns the bytes of all
 * responses.
 */
async function openRecords(t: TestContext) {
  const service = await startService(t, await sqlite.freshUrl(t), {
    tlsCert: `${CERTIFICATES}first.pem`,
    tlsKey: `${CERTIFICATES}first.key`,
  });
  const { hostname, port } = new URL(service.url);
  const socket = connectTls({ host: hostname, port: Number(port), rejectUnauthorized: false });
  t.after(() => socket.destroy());
  socket.on('error', () => undefined);
  let received = '';
  socket.on('data', (bytes) => (received += bytes.toString()));
  // Each write is a record, since the next one waits for it.
  const sendRecord = (text: string) => promisify(socket.write.bind(socket))(text);
  return { sendRecord, received: () => received };
}

test('chunks in a TLS record each, as many as are allowed → accepted, and so is a later request', async (t) => {
  const { sendRecord, received } = await openRecords(t);
  await sendRecord(CHUNKED_HEAD);
  for (let sent = 0; sent < BASE_PIECES; sent += 1) await sendRecord(`10\r\n${' '.repeat(16)}\r\n`);
  await sendRecord('0\r\n\r\n');
  await until(() => received() !== '');
  assert.match(received(), /^HTTP\/1\.1 204 .*\r\n\r\n$/s);
  await sendRecord('GET / HTTP/1.1\r\nHost: plants.test\r\n\r\n');
  await until(() => received().endsWith('}'));
  assert.match(received(), /"error":40401/);
});

for (const [part, first, byte, code] of [
  ['body', `${TLS_HEAD}\r\n`, ' ', 41300],
  ['headers', `${TLS_HEAD}X-Fern: `, 'x', 43100],
  ['request line', '', 'G', 43100],
  ['empty lines before a request', '', '\n', 43100],
] as const)
  test(`${part} in more TLS records than are allowed → ${code}`, async (t) => {
    const { sendRecord, received } = await openRecords(t);
    await sendRecord(first);
    for (let sent = 0; sent < 1_000 && received() === ''; sent += 1) await sendRecord(byte);
    await until(() => received().endsWith('}') || received().includes(' 204 '));
    assert.match(received(), new RegExp(`^HTTP/1\\.1 ${Math.floor(code / 100)} .*\\{"error":${code},`, 's'));
  });

test('headers or request later than the configured timeout → 40800; idle connection → closed', async (t) => {
  const times = { headerTimeout: '1000', requestTimeout: '2000', keepAliveTimeout: '1000' };
  const service = await startService(t, await sqlite.freshUrl(t), times);
  const authorization = (await service.token()).replace(/^/, 'Bearer ');
  const create = renderRequest({
    method: 'POST',
    path: '/plants',
    headers: Object.entries({ authorization, 'content-type': 'application/json' }),
    body: '{"id":1,"name":"Alder"}',
  });
  using seconds = countSeconds();
  const begun = performance.now();
  const after = async <T>(answer: Promise<T>) => [await answer, performance.now() - begun] as const;
  const [[headers, headersMs], [body, bodyMs], [idle, idleMs]] = await Promise.all([
    after(sendRaw(service.url, create.subarray(0, 40))),
    after(sendRaw(service.url, create.subarray(0, -5))),
    after(sendRaw(service.url, renderRequest({ ...GET, headers: [['Connection', 'keep-alive']] }))),
  ]);
  for (const late of [headers, body]) {
    assert.equal(late.status, 408);
    assert.match(late.body.toString(), /^\{"error":40800,"message":"[^"]+"\}$/);
    assert.equal(headerOf(late.headers, 'connection'), 'close');
    assertMarked(late);
  }
  assert.equal(idle.status, 200);
  assert.equal(headerOf(idle.headers, 'keep-alive'), 'timeout=1');
  assert.ok(headersMs >= 1_000 && bodyMs >= 2_000 && idleMs >= 1_000);
  assert.ok(seconds.passed < 9, `${headersMs}, ${bodyMs}, ${idleMs} ms`);
});

test('body later than the timeout, while its token is looked up → 200', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const service = await startService(t, await sqlite.freshUrl(t), { requestTimeout: '1000' });
  const [begun, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const find = service.store.findToken.bind(service.store);
  t.mock.method(service.store, 'findToken', async (...args: Parameters<typeof find>) => {
    begun.resolve();
    await released.promise;
    return find(...args);
  });
  const wire = openWire(service.url);
  t.after(() => wire.destroy());
  const fields = `Authorization: Bearer ${await service.token()}\r\nContent-Type: application/json\r\n`;
  wire.send(`POST /plants HTTP/1.1\r\nHost: plants.test\r\n${fields}Content-Length: 22\r\n\r\n{"id":2,`);
  await begun.promise;
  for (let ticks = 0; ticks < 3; ticks += 1) t.mock.timers.tick(1_000);
  wire.send('"name":"Fern"}');
  released.resolve();
  assert.equal((await wire.answer())?.status, 200);
});

test('idle connection whose client has read its response → stays open after the write timeout', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), { writeTimeout: '1000' });
  const wire = openWire(service.url);
  t.after(() => wire.destroy());
  const ask = async () => {
    wire.send(`${HEAD}\r\n`);
    return (await wire.answer())?.status;
  };
  assert.equal(await ask(), 200);
  using seconds = countSeconds();
  // The kernel's send queues are read every two ticks, which are seconds.
  await until(() => seconds.passed >= 5);
  assert.equal(await ask(), 200);
});

test('client that does not read its list → closed after the write timeout, and the log says why', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), { writeTimeout: '1000' });
  const token = await service.token();
  // Together more bytes than the operating system buffers.
  const plants = Array.from({ length: 20 }, (_, id) =>
    createPlant(BigInt(id), { name: 'x'.repeat(1_000_000) }),
  );
  await Promise.all(plants.map((plant) => service.store.write(plant)));
  const { hostname, port } = new URL(service.url);
  const client = connect(Number(port), hostname);
  t.after(() => client.destroy());
  client.write(`GET /plants HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`);
  const gone = await lineOf(service, 'client went away');
  assert.deepEqual([gone.reason, gone.status, gone.owner], ['notRead', undefined, 'alice']);
  assert.ok(Number(gone.ms) > 1_000, JSON.stringify(gone));
});

test('client that closes its side after its request → gets the response, and the log says so', async (t) => {
  const { service, client, request, held } = await holdCreation(t);
  client.end(request);
  await until(() => service.store.load().writesInFlight > 0);
  await held.release();
  assert.match(await text(client), /^HTTP\/1\.1 200 /);
  const { reason, status } = await lineOf(service, 'client went away');
  assert.deepEqual([reason, status], ['ended', 200]);
});

test('client that resets its connection during its request → the log says so', async (t) => {
  const { service, client, request, held } = await holdCreation(t);
  client.write(request);
  await until(() => service.store.load().writesInFlight > 0);
  client.resetAndDestroy();
  const { reason, status } = await lineOf(service, 'client went away');
  assert.deepEqual([reason, status], ['lost', undefined]);
  await held.release();
});

test('connection above the limit → 50301 and closed; after another closes → 200', async (t) => {
  const url = await sqlite.freshUrl(t);
  const service = await startService(t, url, { maxConnections: '3' });
  const headers = Object.entries({ ...bearer(await service.token()), 'content-type': 'application/json' });
  const open = await Promise.all([1, 2, 3].map(() => openAndAsk(service.url)));
  // With a request in flight, none of them waits for its client.
  const held = await holdWrites(url);
  for (const [id, socket] of open.entries())
    socket.write(
      renderRequest({ method: 'POST', path: '/plants', headers, body: `{"id":${id},"name":"Alder"}` }),
    );
  await until(() => {
    const { writesWaiting, writesInFlight } = service.store.load();
    return writesWaiting + writesInFlight >= open.length;
  });
  for (let tries = 0; tries < 5; tries += 1) {
    const rejected = await sendRequest(service.url, GET);
    assert.equal(rejected.status, 503);
    assert.match(rejected.body.toString(), /^\{"error":50301,"message":"too many connections[^"]*"\}$/);
    assert.equal(headerOf(rejected.headers, 'retry-after'), '1');
    assertMarked(rejected);
  }
  const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
  assert.match(metrics, /^plant_store_http_connections 3$/m);
  assert.match(metrics, /^plant_store_http_rejected_connections_total 5$/m);
  const [first, ...others] = open;
  first?.destroy();
  await until(async () => (await sendRequest(service.url, GET)).status === 200);
  await held.release();
  for (const socket of others) socket.destroy();
});

test('new connection at the limit → a request that is incomplete for two seconds gets 50301', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), { maxConnections: '1' });
  const wire = openWire(service.url);
  t.after(() => wire.destroy());
  wire.send(`${HEAD}\r\n${HEAD}`);
  assert.equal((await wire.answer())?.status, 200);
  assert.equal((await sendRequest(service.url, GET)).status, 503);
  await until(async () => (await sendRequest(service.url, GET)).status === 200);
  assert.match(
    String((await wire.answer())?.body),
    /^\{"error":50301,"message":"too many connections[^"]*"\}$/,
  );
  assert.equal((await wire.rest()).length, 0);
});

test('new connection at the limit → the connection idle longest is closed', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), { maxConnections: '3' });
  const first = await openAndAsk(service.url);
  const closed = once(first, 'close');
  const others = [await openAndAsk(service.url), await openAndAsk(service.url)];
  assert.equal((await sendRequest(service.url, GET)).status, 200);
  await closed;
  assert.deepEqual(
    others.map(({ destroyed }) => destroyed),
    [false, false],
  );
  for (const socket of others) socket.destroy();
});

test('half a request after a complete one → header timeout applies, not the keep-alive timeout', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), { headerTimeout: '1000' });
  for (const half of ['GET /openapi.js', HEAD]) {
    const wire = openWire(service.url);
    t.after(() => wire.destroy());
    wire.send(`${HEAD}\r\n${half}`);
    assert.equal((await wire.answer())?.status, 200);
    assert.equal((await wire.answer())?.status, 408);
  }
});

/** 60,000 bytes in UTF-8. A body, and a page of the store, have room for one such name. */
const LONG_NAME = '\u690d'.repeat(20_000);
const SHORT_PLANTS = 64;
const LONG_PLANTS = 20;
/** Their list of 7 MB is more than the operating system buffers for a client that does not read. */
const UNREAD_PLANTS = 120;

for (const engine of engines) {
  test(`list: later plants longer than the first, total above --send-buffer-limit → complete, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t), { sendBufferLimit: '1048576' });
    const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
    const plants = Array.from({ length: SHORT_PLANTS + LONG_PLANTS }, (_, index) => ({
      name: index < SHORT_PLANTS ? 'Fern' : LONG_NAME,
    }));
    for (const [id, plant] of plants.entries()) {
      const body = JSON.stringify({ id, ...plant });
      assert.equal((await fetch(`${service.url}/plants`, { method: 'POST', headers, body })).status, 200);
    }
    // Twice: the second request needs the memory that the first has released.
    for (const limit of [1_000, plants.length]) {
      const response = await fetch(`${service.url}/plants?limit=${limit}`, { headers });
      assert.equal(response.status, 200);
      assert.deepEqual(await response.json(), plants);
    }
  });
}

for (const engine of engines) {
  test(`list whose first plant is larger than --send-buffer-limit → complete, on ${engine.name}`, async (t) => {
    const bytes = 1_048_576;
    const flags = { sendBufferLimit: String(bytes), bodyLimit: String(2 * bytes) };
    const service = await startService(t, await engine.freshUrl(t), flags);
    const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
    const plants = [{ name: 'x'.repeat(bytes) }, { name: 'Fern' }];
    for (const [id, plant] of plants.entries()) {
      const body = JSON.stringify({ id, ...plant });
      assert.equal((await fetch(`${service.url}/plants`, { method: 'POST', headers, body })).status, 200);
    }
    const response = await fetch(`${service.url}/plants`, { headers });
    assert.deepEqual([response.status, await response.json()], [200, plants]);
  });
}

test('closed lists that waited for memory → places free at once, also behind one that still waits', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), {
    sendBufferLimit: '1048576',
    maxInFlight: '4',
  });
  const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
  for (let id = 0; id <= UNREAD_PLANTS; id += 1) {
    const body = JSON.stringify({ id, name: id === 0 ? 'Fern' : LONG_NAME });
    assert.equal((await fetch(`${service.url}/plants`, { method: 'POST', headers, body })).status, 200);
  }
  const askForAll = async (): Promise<Socket> => {
    const { hostname, port } = new URL(service.url);
    const socket = connect(Number(port), hostname);
    socket.write(
      renderRequest({ method: 'GET', path: '/plants?limit=1000', headers: Object.entries(headers) }),
    );
    await once(socket, 'connect');
    t.after(() => socket.destroy());
    return socket;
  };
  const statusOfShort = async () => (await fetch(`${service.url}/plants?limit=1`, { headers })).status;
  // The first holds the memory. The others take all places of their owner while they wait for it.
  const unread = await askForAll();
  await once(unread, 'readable');
  const oldest = await askForAll();
  const others = [await askForAll(), await askForAll()];
  while ((await statusOfShort()) === 200);
  for (const socket of others) socket.resetAndDestroy();
  while ((await statusOfShort()) !== 200);
  assert.equal(oldest.readableLength, 0, 'the places were freed only when the oldest list stopped waiting');
  unread.destroy();
  await once(oldest, 'readable');
  assert.match(String(oldest.read()), /^HTTP\/1\.1 200 OK\r\n/);
  oldest.destroy();
});

test('owner whose clients do not read their lists → 50301 at its share; lists of others and /docs work', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), {
    sendBufferLimit: String(4 * 1_024 * 1_024),
  });
  const [alice, bob] = [bearer(await service.token()), bearer(await service.token('bob'))];
  for (const [headers, count] of [
    [alice, UNREAD_PLANTS],
    [bob, LONG_PLANTS],
  ] as const)
    for (let id = 0; id < count; id += 1) {
      const init = { method: 'POST', headers: { ...headers, 'content-type': 'application/json' } };
      await fetch(`${service.url}/plants`, { ...init, body: JSON.stringify({ id, name: LONG_NAME }) });
    }
  const { hostname, port } = new URL(service.url);
  // A list without `limit` counts as a mebibyte, and three quarters are three of them.
  for (let lists = 0; lists < 3; lists += 1) {
    const socket = connect(Number(port), hostname);
    t.after(() => socket.destroy());
    socket.write(renderRequest({ method: 'GET', path: '/plants', headers: Object.entries(alice) }));
    await once(socket, 'readable');
  }
  const statusOf = async (path: string, headers: Record<string, string>) => {
    const response = await fetch(`${service.url}${path}`, { headers });
    await response.arrayBuffer();
    return response.status;
  };
  assert.equal(await statusOf('/plants', alice), 503);
  assert.equal(await statusOf('/plants?limit=1', alice), 200);
  assert.equal(await statusOf('/plants', bob), 200);
  assert.equal(await statusOf('/plants?limit=3', bob), 200);
  assert.equal(await statusOf('/docs/scalar.js', {}), 200);
});

/** Checks the headers that every error has. */
function assertMarked({ headers }: RawAnswer): void {
  assert.equal(headerOf(headers, 'cache-control'), 'no-store');
  assert.match(headerOf(headers, 'x-request-id') ?? '', /^[\w-]{8,}$/);
}

/** Opens a connection that has had one response and stays open. */
async function openAndAsk(url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.write(renderRequest({ ...GET, headers: [['Connection', 'keep-alive']] }));
  const [answer] = await once(socket, 'data');
  assert.match(String(answer), /^HTTP\/1\.1 200 OK\r\n/);
  return socket.resume();
}

/** Prepares a creation that stays in the store until `held` is released. */
async function holdCreation(t: TestContext) {
  const url = await sqlite.freshUrl(t);
  const service = await startService(t, url);
  const headers = Object.entries({ ...bearer(await service.token()), 'content-type': 'application/json' });
  const request = renderRequest({
    method: 'POST',
    path: '/plants',
    headers,
    body: '{"id":1,"name":"Alder"}',
  });
  const { hostname, port } = new URL(service.url);
  return { service, client: connect(Number(port), hostname), request, held: await holdWrites(url) };
}

/** Resolves to the first log line of a service with a message, once it is there. */
async function lineOf({ logLines }: TestService, message: string): Promise<Record<string, unknown>> {
  let line: string | undefined;
  await until(() => {
    line = logLines.find((one) => one.includes(`"msg":"${message}"`));
    return line !== undefined;
  });
  return JSON.parse(line ?? '');
}
