import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import { connect, Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { loadConfig } from '../../../src/config.ts';
import { BatchedResponse } from '../../../src/http/batched-response.ts';
import { renderRawError, toApiError } from '../../../src/http/error-response.ts';
import {
  MAX_DISCARDED_BYTES,
  STALLED_TICKS,
} from '../../../src/http/protocol/connection/connection-options.ts';
import { ConnectionRegistry, TICK_MS } from '../../../src/http/protocol/connection/connection-registry.ts';
import { Connection } from '../../../src/http/protocol/connection/http-connection.ts';
import { MAX_UNPARSED_BYTES } from '../../../src/http/protocol/connection/input-limit.ts';
import { readSendQueues } from '../../../src/http/protocol/connection/kernel-send-queue.ts';
import { LINGER_MS } from '../../../src/http/protocol/connection/linger.ts';
import {
  BASE_PIECES,
  BYTES_PER_PIECE,
  MAX_FIELDS,
} from '../../../src/http/protocol/connection/message-framing.ts';
import { UNCOUNTED_INPUT_BYTES } from '../../../src/http/protocol/connection/socket-input.ts';
import { createHttpServer, MAX_REJECTED } from '../../../src/http/protocol/http-server.ts';
import { openTls, type Tls } from '../../../src/http/protocol/tls.ts';
import { openWire, type Wire } from '../../support/clients/raw-connection.ts';
import { PATIENCE_MS, until } from '../../support/patience.ts';
import { needOpenFiles } from '../../support/process-resources.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';

const limits = loadConfig({}, {});
const REQUEST = 'GET / HTTP/1.1\r\nHost: plants.test\r\n\r\n';
const HELD_REQUEST = REQUEST.replace('/', '/held');
const [CERTIFICATE = '', KEY = ''] = ['pem', 'key'].map((kind) =>
  fileURLToPath(new URL(`../../support/certificates/first.${kind}`, import.meta.url)),
);

test('no connection is open → empty at once', async () => {
  await new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit).whenEmpty();
});

test('connections are open → empty when the last one closes', async (t) => {
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const url = `http://127.0.0.1:${await listenOnFreePort(listenerOf(t, connections))}`;
  const wires = [openWire(url), openWire(url)];
  for (const wire of wires) {
    wire.send(REQUEST);
    assert.equal((await wire.answer())?.status, 200);
  }
  let isEmpty = false;
  const empty = connections.whenEmpty().then(() => {
    isEmpty = true;
  });
  wires[0]?.destroy();
  await setImmediate();
  assert.equal(isEmpty, false);
  wires[1]?.destroy();
  await empty;
});

test('connection accepted after the stop began → closed without a response', async (t) => {
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const port = await listenOnFreePort(listenerOf(t, connections));
  const empty = connections.closeWhenIdle();
  const wire = openWire(`http://127.0.0.1:${port}`);
  t.after(() => wire.destroy());
  assert.equal((await wire.rest()).length, 0);
  wire.destroy();
  await empty;
});

test('request in flight when the stop begins → its connection is closed after the response', async (t) => {
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const { held, wire } = await holdOneRequest(t, connections);
  const empty = connections.closeWhenIdle();
  held[0]?.end();
  assert.equal(await statusOf(wire), 200);
  assert.equal((await wire.rest()).length, 0);
  await empty;
});

for (const how of ['destroy', 'closeWhenIdle'] as const)
  test(`TLS: client that never begins its handshake → closed at once by ${how}`, async (t) => {
    const { connections, silent } = await beginHandshake(t);
    const closed = once(silent, 'close');
    void connections[how]();
    await closed;
    await connections.whenEmpty();
  });

test('TLS: client that leaves in its handshake → closed at once, not after the timeout', async (t) => {
  const { connections, silent } = await beginHandshake(t);
  silent.destroy();
  await until(() => connections.size === 0);
});

test('TLS: client that never begins its handshake → closed after the header timeout, with an error', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { listener, silent } = await beginHandshake(
    t,
    limits.maxConnections,
    undefined,
    limits.headerTimeout,
  );
  const failed = once(listener, 'clientError');
  const closed = once(silent, 'close');
  for (let ticks = 0; ticks < limits.headerTimeout / TICK_MS; ticks += 1) t.mock.timers.tick(TICK_MS);
  assert.equal(silent.destroyed, false);
  t.mock.timers.tick(TICK_MS);
  const [error] = await failed;
  assert.equal(error.code, 'ERR_TLS_HANDSHAKE_TIMEOUT');
  await closed;
});

test('TLS: connection at the limit → a stalled handshake is closed for it; without one it is closed itself', async (t) => {
  const { held, handler } = holdRequests();
  const { connections, silent, url } = await beginHandshake(t, 1, handler);
  const closed = once(silent, 'close');
  assert.equal(connections.makeRoom(), false, 'a handshake that has just begun is not closed');
  await until(async () => {
    const wire = openWire(url);
    wire.send(REQUEST);
    const answer = await wire.answer();
    wire.destroy();
    return answer?.status === 200;
  });
  await closed;

  const wire = openWire(url);
  t.after(() => wire.destroy());
  wire.send(HELD_REQUEST);
  wire.end();
  await until(() => held.length === 1);
  // Without TLS, this client would see the bytes of a response.
  assert.equal((await openWire(url.replace('https:', 'http:')).rest()).length, 0);
  held[0]?.end();
  assert.equal((await wire.answer())?.status, 200, 'after its handshake a client may close its sending side');
});

for (const [when, request] of [
  ['while its request is executed', HELD_REQUEST],
  ['while its request arrives', HELD_REQUEST.slice(0, -2)],
  ['while it is idle', ''],
] as const)
  test(`TLS: client sends a record that is not encrypted, ${when} → the connection is closed`, async (t) => {
    const { held, handler } = holdRequests();
    const { connections, silent } = await beginHandshake(t, limits.maxConnections, handler);
    const client = connectTls({ socket: silent, rejectUnauthorized: false }).on('error', () => undefined);
    await once(client, 'secureConnect');
    // An answered request first: the handshake is then complete on both sides.
    client.write(REQUEST);
    await once(client, 'data');
    if (request !== '') client.write(request);
    if (request === HELD_REQUEST) await until(() => held.length === 1);
    const closed = Promise.all(held.map((response) => once(response, 'close')));
    silent.write(Buffer.from('150303000228', 'hex'));
    silent.write(Buffer.alloc(64));
    await closed;
    await until(() => connections.size === 0);
  });

test('TLS: connection at the limit → a handshake of STALLED_TICKS is closed for it, a shorter one is not', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { connections, silent } = await beginHandshake(t, 1);
  const closed = once(silent, 'close');
  for (let ticks = 0; ticks < STALLED_TICKS; ticks += 1) {
    assert.equal(connections.makeRoom(), false, `after ${ticks} ticks`);
    t.mock.timers.tick(TICK_MS);
  }
  assert.equal(connections.makeRoom(), true);
  await closed;
});

test('TLS: more requests on a connection than TLS records that one request may have → accepted', async (t) => {
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const listener = listenerOf(t, connections, openTls(CERTIFICATE, KEY, { event: () => undefined }));
  const wire = openWire(`https://127.0.0.1:${await listenOnFreePort(listener)}`);
  t.after(() => wire.destroy());
  for (let requests = 0; requests <= BASE_PIECES; requests += 1) {
    wire.send(REQUEST);
    assert.equal(await statusOf(wire), 200);
  }
});

test('TLS: tiny records of a body → do not count towards those of the next request', async (t) => {
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const tls = openTls(CERTIFICATE, KEY, { event: () => undefined });
  const port = await listenOnFreePort(listenerOf(t, connections, tls, answerOrReceive));
  const client = connectTls({ port, rejectUnauthorized: false }).on('error', () => undefined);
  t.after(() => client.destroy());
  const sendRecord = promisify((text: string, done: () => void) => client.write(text, done));
  const statusAfter = async (text: string): Promise<string> => {
    for (const character of text) await sendRecord(character);
    const [answer] = await once(client, 'data');
    return String(answer).slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length);
  };
  const length = Math.ceil(BASE_PIECES * 0.9);
  await sendRecord(`POST / HTTP/1.1\r\nHost: plants.test\r\nContent-Length: ${length}\r\n\r\n`);
  assert.equal(await statusAfter('x'.repeat(length)), '200');
  assert.equal(
    await statusAfter(REQUEST.replace('Host', `X-Why: ${'y'.repeat(BASE_PIECES / 4)}\r\nHost`)),
    '200',
  );
});

test('TLS: thousands of tiny records behind a request that waits → reading stops with the first ones', async (t) => {
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const tls = openTls(CERTIFICATE, KEY, { event: () => undefined });
  const { promise: waiting, resolve: wait } = Promise.withResolvers<Socket>();
  const listener = listenerOf(t, connections, tls, (request, response) => {
    if (request.url === '/held') wait(request.socket);
    else response.end();
  });
  const port = await listenOnFreePort(listener);
  const client = connectTls({ port, rejectUnauthorized: false }).on('error', () => undefined);
  t.after(() => client.destroy());
  client.write(HELD_REQUEST);
  const socket = await waiting;
  const sendRecord = promisify((text: string, done: () => void) => client.write(text, done));
  for (let sent = 0; sent < 8_000; sent += 1) await sendRecord('G');
  // Lets the service read what it reads.
  const other = openWire(`https://127.0.0.1:${port}`);
  t.after(() => other.destroy());
  for (let requests = 0; requests < 50; requests += 1) {
    other.send(REQUEST);
    assert.equal(await statusOf(other), 200);
  }
  // The records of one read of 64 KiB.
  assert.ok(socket.bytesRead < 3_500, `${socket.bytesRead} bytes were read`);
});

test('TLS: client that ends its sending side right behind pipelined requests → each response is marked', async (t) => {
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const tls = openTls(CERTIFICATE, KEY, { event: () => undefined });
  let halfClosed: boolean[] = [];
  const listener = listenerOf(t, connections, tls, async (_request, response) => {
    assert.ok(response instanceof BatchedResponse);
    await setImmediate();
    halfClosed.push(response.isHalfClosed);
    response.end();
  });
  const url = `https://127.0.0.1:${await listenOnFreePort(listener)}`;
  // Only if the service reads all of it at once: it stops to read while a request waits.
  await until(async () => {
    const wire = openWire(url);
    wire.send(REQUEST);
    assert.equal(await statusOf(wire), 200);
    halfClosed = [];
    wire.send(REQUEST.repeat(2));
    wire.end();
    await wire.rest();
    return halfClosed.length === 2 && halfClosed.every((isHalfClosed) => isHalfClosed);
  });
});

test('response that Node rejects → its connection is closed, the others get their responses', async (t) => {
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const responses: ServerResponse[] = [];
  const listener = listenerOf(t, connections, undefined, (_request, response) => {
    responses.push(response);
    if (responses.length < 3) return;
    for (const [index, one] of responses.entries()) {
      if (index === 1) one.statusCode = 99;
      one.end();
    }
  });
  const url = `http://127.0.0.1:${await listenOnFreePort(listener)}`;
  const wires = [openWire(url), openWire(url), openWire(url)];
  t.after(() => {
    for (const wire of wires) wire.destroy();
  });
  for (const [index, wire] of wires.entries()) {
    wire.send(REQUEST);
    if (index < 2) await until(() => responses.length === index + 1);
  }
  const answers = await Promise.all(wires.map((wire) => wire.answer()));
  assert.deepEqual(
    answers.map((answer) => answer?.status),
    [200, undefined, 200],
  );
});

test('socket that no server of Node has set up → an error', async () => {
  const socket = new Socket();
  const timeouts = { headers: 1, request: 1, idle: 1, write: 1 };
  const options = {
    maxHeaderBytes: limits.headerLimit,
    timeouts,
    handle: () => undefined,
    isTls: false,
    waitToParse: () => undefined,
    waitToReject: () => undefined,
    reportRejection: (error: unknown) => renderRawError(toApiError(error), {}),
    onClosed: () => undefined,
    onIdle: () => undefined,
    onInputCounted: () => undefined,
  };
  assert.throws(() => new Connection(socket, options), /has no parser for a connection/);
  assert.equal((await readSendQueues()).of(socket), undefined, 'it has no send queue either');
});

test('TLS: handshakes reset and begun again from the same port → counted', async (t) => {
  const { connections, silent, url } = await beginHandshake(t);
  const connectFrom = async (localPort: number): Promise<Socket> => {
    const host = '127.0.0.1';
    const socket = connect({ port: Number(new URL(url).port), host, localAddress: host, localPort });
    t.after(() => socket.destroy());
    await once(socket, 'connect');
    return socket;
  };
  let last = silent;
  let samePort = 0;
  for (let times = 0; times < 20; times += 1) {
    const { localPort = 0 } = last;
    const closed = once(last, 'close');
    last.resetAndDestroy();
    await closed;
    // Another program may have taken the port meanwhile.
    last = await connectFrom(localPort).catch(() => connectFrom(0));
    if (last.localPort === localPort) samePort += 1;
    // The service has accepted it once it has closed the one before.
    await until(() => connections.size <= 1);
  }
  for (let turns = 0; turns < 10; turns += 1) await setImmediate();
  assert.ok(samePort > 0);
  assert.equal(connections.size, 1);
});

/** Keeps its connections, so that a test can count their ticks, and the counted bytes of input. */
class OpenConnections extends ConnectionRegistry {
  readonly all: Connection[] = [];
  readonly #inputs = new Map<object, number>();

  get counted(): number {
    return this.#inputs.values().reduce((sum, bytes) => sum + bytes, 0);
  }

  override add(connection: Connection): void {
    this.all.push(connection);
    super.add(connection);
  }

  override countInput(...[connection, bytes]: Parameters<ConnectionRegistry['countInput']>): void {
    this.#inputs.set(connection, bytes);
    super.countInput(connection, bytes);
  }
}

test('first request long after the connect → its time begins with its first byte', async (t) => {
  const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
  const listener = listenerOf(t, connections, undefined, (request, response) => {
    acceptBody(response);
    request.resume().on('end', () => response.end());
  });
  const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(listener)}`);
  t.after(() => wire.destroy());
  await until(() => connections.all.length === 1);
  const [connection] = connections.all;
  // Not all ticks of the limit: the timer of the registry adds one each second.
  const most = 0.8 * (limits.requestTimeout / TICK_MS);
  for (let ticks = 0; ticks < most; ticks += 1) connection?.tick();
  wire.send('POST / HTTP/1.1\r\nHost: plants.test\r\nContent-Length: 1\r\n\r\n');
  await until(() => connection?.isIdle === false);
  for (let ticks = 0; ticks < most; ticks += 1) connection?.tick();
  wire.send('x');
  assert.equal((await wire.answer())?.status, 200);
});

for (const framing of ['Content-Length: 1\r\n\r\nx', 'Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n'])
  test(`headers are checked for longer than the timeout, ${framing.slice(0, 14)} → the body then arrives`, async (t) => {
    const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
    const checked: ServerResponse[] = [];
    const listener = listenerOf(t, connections, undefined, (request, response) => {
      checked.push(response);
      request.on('data', (piece) => response.write(piece)).on('end', () => response.end());
    });
    const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(listener)}`);
    t.after(() => wire.destroy());
    const end = framing.length - 1;
    wire.send(`POST / HTTP/1.1\r\nHost: plants.test\r\n${framing.slice(0, end)}`);
    await until(() => checked.length === 1);
    const [connection] = connections.all;
    for (let ticks = 0; ticks <= limits.requestTimeout / TICK_MS; ticks += 1) connection?.tick();
    wire.send(framing.slice(end));
    for (const response of checked) acceptBody(response);
    assert.equal(String((await wire.answer())?.body), 'x');
  });

for (const [what, sent, headerTimeout, timeout] of [
  ['half of the headers', REQUEST.slice(0, -2), limits.headerTimeout, limits.headerTimeout],
  [
    'half of the headers, shorter timeout of requests',
    REQUEST.slice(0, -2),
    undefined,
    limits.requestTimeout,
  ],
  ['no byte', '', limits.headerTimeout, limits.headerTimeout],
] as const)
  test(`${what} → 40800 after ${timeout} ms`, async (t) => {
    const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
    const listener = listenerOf(t, connections, undefined, () => assert.fail(), { headerTimeout });
    const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(listener)}`);
    t.after(() => wire.destroy());
    await until(() => connections.all.length === 1);
    const [connection] = connections.all;
    wire.send(sent);
    await until(() => connection?.isIdle === (sent === ''));
    for (let ticks = 0; ticks <= timeout / TICK_MS; ticks += 1) connection?.tick();
    assert.equal(connection?.waitsForClient, false);
    assert.match(String((await wire.answer())?.body), /"error":40800/);
  });

test('response that takes longer than the keep-alive timeout → its connection is then used again', async (t) => {
  const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
  const held: ServerResponse[] = [];
  const listener = listenerOf(t, connections, undefined, (_request, response) => {
    if (held.length === 0) held.push(response);
    else response.end();
  });
  const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(listener)}`);
  t.after(() => wire.destroy());
  wire.send(REQUEST);
  await until(() => held.length === 1);
  const [connection] = connections.all;
  for (let ticks = 0; ticks <= limits.keepAliveTimeout / TICK_MS; ticks += 1) connection?.tick();
  held[0]?.end();
  assert.equal(await statusOf(wire), 200);
  connection?.tick();
  wire.send(REQUEST);
  assert.equal(await statusOf(wire), 200);
});

for (const [what, sent] of [
  ['headers', REQUEST.slice(0, -2)],
  ['a request line', 'GET /'],
] as const)
  test(`connection that closes with half of ${what} → its input is no longer counted`, async (t) => {
    const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
    const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(listenerOf(t, connections))}`);
    wire.send(`${sent}${what === 'headers' ? 'X-Long: ' : ''}`.padEnd(2 * UNCOUNTED_INPUT_BYTES, 'x'));
    await until(() => connections.counted > 0);
    wire.destroy();
    await until(() => connections.size === 0);
    assert.equal(connections.counted, 0);
  });

for (const [what, sent] of [
  ['headers', `${REQUEST.replace('GET', 'HEAD').slice(0, -2)}X-Long: `],
  ['a request line after an empty line', '\r\nHEAD /'],
] as const)
  test(`input of a HEAD request is rejected, half of ${what} → a response without a body`, async (t) => {
    const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
    const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(listenerOf(t, connections))}`);
    wire.send(sent.padEnd(2 * UNCOUNTED_INPUT_BYTES, 'x'));
    await until(() => connections.counted > 0);
    connections.countInput(LATER, MAX_UNPARSED_BYTES);
    const all = String(await wire.rest());
    assert.match(all, /^HTTP\/1\.1 503 /);
    assert.match(all, /\r\n\r\n$/);
  });

test('connection at the limit → the longest idle one or stalled request makes way, no other', async (t) => {
  const connections = new OpenConnections(3, limits.sendBufferLimit);
  const listener = listenerOf(t, connections, undefined, answerOrReceive);
  const url = `http://127.0.0.1:${await listenOnFreePort(listener)}`;
  const open = async (bytes: string): Promise<Wire> => {
    const wire = openWire(url);
    t.after(() => wire.destroy());
    wire.send(bytes);
    const place = connections.all.length;
    await until(() => connections.all[place]?.isIdle === false);
    return wire;
  };
  const stall = (...places: readonly number[]): void => {
    for (const place of places)
      for (let ticks = 0; ticks < STALLED_TICKS; ticks += 1) connections.all[place]?.tick();
  };
  const isAccepted = async (): Promise<boolean> => {
    const wire = openWire(url);
    wire.send(REQUEST);
    const status = await statusOf(wire);
    wire.destroy();
    return status === 200;
  };
  const half = 'POST / HTTP/1.1\r\nHost: plants.test\r\nContent-Length: 9\r\n\r\nx';
  const body = await open(half);
  const headers = await open(REQUEST.slice(0, -2));
  const later = await open(half);
  assert.equal(await isAccepted(), false, 'requests that arrive now are not closed');
  assert.deepEqual([connections.rejected, connections.closedIncomplete], [1, 0]);

  stall(1, 2);
  // The service looks for them again at its next tick.
  await until(isAccepted);
  const before = connections.rejected;
  assert.match(String(await headers.rest()), /"error":50301.*too many connections are open/);
  await until(() => connections.size === 2);
  const filler = await open(half);
  stall(0);
  assert.equal(await isAccepted(), true);
  assert.equal(await statusOf(body), 503, 'its request began before the other stalled one');
  for (const wire of [later, filler]) {
    wire.send('xxxxxxxx');
    assert.equal(await statusOf(wire), 200);
  }
  assert.deepEqual([connections.rejected, connections.closedIncomplete], [before, 2]);
});

test('connection whose request took long → idle only from its response on', async (t) => {
  const connections = new OpenConnections(2, limits.sendBufferLimit);
  const { held, handler } = holdRequests();
  const url = `http://127.0.0.1:${await listenOnFreePort(listenerOf(t, connections, undefined, handler))}`;
  const [slow, quick] = [openWire(url), openWire(url)];
  t.after(() => {
    for (const wire of [slow, quick]) wire.destroy();
  });
  slow.send(HELD_REQUEST);
  await until(() => held.length === 1);
  quick.send(REQUEST);
  assert.equal(await statusOf(quick), 200);
  held[0]?.end();
  await until(() => connections.all.every(({ isIdle }) => isIdle));
  assert.equal(connections.makeRoom(), true);
  assert.deepEqual(
    connections.all.map(({ socket }) => socket.destroyed),
    [false, true],
  );
});

test('connection that becomes idle between two ticks → makes way', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const connections = new OpenConnections(1, limits.sendBufferLimit);
  const { held } = await holdOneRequest(t, connections);
  assert.equal(connections.makeRoom(), false);
  held[0]?.end();
  await until(() => connections.all[0]?.isIdle === true);
  assert.equal(connections.makeRoom(), true);
});

test('stalled request that makes way → closed once its error response is sent, though its client stays', async (t) => {
  const connections = new OpenConnections(1, limits.sendBufferLimit);
  const port = await listenOnFreePort(listenerOf(t, connections));
  const client = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).setEncoding('latin1');
  t.after(() => client.destroy());
  client.write('GET /');
  await until(() => connections.all[0]?.isIdle === false);
  const [connection] = connections.all;
  assert.ok(connection);
  // Without the timer that closes a connection whose client stays.
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const closed = once(connection.socket, 'close');
  connection.evict();
  await closed;
  const [response] = await once(client, 'data');
  assert.match(response, /"error":50301/);
});

test('request that makes way with a response that its client does not read → closed soon', async (t) => {
  const connections = new OpenConnections(1, limits.sendBufferLimit);
  const listener = listenerOf(t, connections, undefined, (_request, response) => {
    acceptBody(response);
    response.end(Buffer.alloc(16 * 1_024 * 1_024));
  });
  const client = connect(await listenOnFreePort(listener), '127.0.0.1');
  t.after(() => client.destroy());
  client.write('POST / HTTP/1.1\r\nHost: plants.test\r\nContent-Length: 9\r\n\r\nx');
  await until(() => (connections.all[0]?.socket.writableLength ?? 0) > 0);
  const [connection] = connections.all;
  assert.ok(connection);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  connection.evict();
  t.mock.timers.tick(LINGER_MS);
  assert.equal(connection.socket.destroyed, true);
});

test('connection at the limit → responses that are not read make way too, in the order of waiting', async (t) => {
  // Without the timer of the registry: the test counts the ticks.
  t.mock.timers.enable({ apis: ['setInterval'] });
  const connections = new OpenConnections(3, limits.sendBufferLimit);
  const listener = listenerOf(t, connections, undefined, ({ url }, response) => {
    response.end(Buffer.alloc(url === '/long' ? 16 * 1_024 * 1_024 : 0));
  });
  const url = `http://127.0.0.1:${await listenOnFreePort(listener)}`;
  const open = async (bytes: string, isOpen: (connection: Connection) => boolean): Promise<Connection> => {
    const client = connect(Number(new URL(url).port), '127.0.0.1').pause();
    t.after(() => client.destroy());
    client.write(bytes);
    const place = connections.all.length;
    await until(() => connections.all[place] !== undefined && isOpen(connections.all[place]));
    return connections.all[place] ?? assert.fail();
  };
  const openLong = (): Promise<Connection> =>
    open(REQUEST.replace('/', '/long'), ({ socket }) => socket.writableLength > 0);
  const openHalf = (): Promise<Connection> => open(REQUEST.slice(0, -2), ({ isIdle }) => !isIdle);
  /** Ticks, with a check of its send queue after every second one. */
  const wait = (connection: Connection, ticks: number, queueAt: (tick: number) => number): void => {
    for (let tick = 1; tick <= ticks; tick += 1) {
      connection.tick();
      if (tick % 2 === 0) connection.checkSendQueue(() => queueAt(tick), 0);
    }
  };
  const hasRoom = (): boolean => {
    connections.noteIdle();
    return connections.makeRoom();
  };
  const [slow, stalled, longest] = [await openLong(), await openLong(), await openLong()];
  wait(stalled, 2, () => 1);
  assert.equal(hasRoom(), false, 'one check does not show whether the client reads');
  wait(slow, 20, (tick) => tick);
  wait(longest, 8, () => 1);
  wait(stalled, 4, () => 1);
  assert.equal(hasRoom(), true);
  const isClosed = (): readonly boolean[] => [slow, stalled, longest].map(({ socket }) => socket.destroyed);
  assert.deepEqual(isClosed(), [false, false, true]);

  const idle = await open('', (connection) => connection.isIdle);
  assert.equal(hasRoom(), true);
  assert.deepEqual([idle.socket.destroyed, ...isClosed()], [false, false, true, true]);

  await openHalf();
  assert.equal(hasRoom(), true);
  assert.equal(idle.socket.destroyed, true);
  await openHalf();
  assert.equal(hasRoom(), false);
  assert.deepEqual([slow.socket.destroyed, connections.closedIncomplete], [false, 0]);
});

test('connection closed after a response, while a pipelined request waits → closed at once when its client closes it', async (t) => {
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const listener = listenerOf(t, connections, undefined, (_request, response) => {
    response.writeHead(200, { connection: 'close' }).end();
  });
  const accepted = once(listener, 'connection');
  const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(listener)}`);
  t.after(() => wire.destroy());
  // Without the timer that closes a connection whose client stays.
  t.mock.timers.enable({ apis: ['setTimeout'] });
  wire.send(REQUEST.repeat(2));
  const [socket] = await accepted;
  if (!socket.destroyed) await once(socket, 'close');
  assert.equal(await statusOf(wire), 200);
  assert.equal((await wire.rest()).length, 0);
});

for (const [what, sent, body] of [
  ['an error response', 'GET / HTTP/9.9\r\n\r\n', ''],
  [
    'an early response that its client reads late',
    'POST / HTTP/1.1\r\nHost: plants.test\r\nContent-Length: 99999999\r\n\r\n',
    Buffer.alloc(16 * 1_024 * 1_024),
  ],
] as const)
  test(`more bytes after ${what} → the service soon reads no more`, async (t) => {
    const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
    const listener = listenerOf(t, connections, undefined, (_request, response) => {
      response.writeHead(200, { connection: 'close' }).end(body);
    });
    const client = connect(await listenOnFreePort(listener), '127.0.0.1').pause();
    t.after(() => client.destroy());
    client.write(sent);
    await until(() => connections.all[0]?.isIdle === false);
    const [connection] = connections.all;
    assert.ok(connection);
    const { socket } = connection;
    const before = socket.bytesRead;
    // Without the timer that closes a connection whose client stays.
    t.mock.timers.enable({ apis: ['setTimeout'] });
    client.write(Buffer.alloc(16 * 1_024 * 1_024));
    while (!socket.isPaused()) await setImmediate();
    await once(client.resume(), 'end');
    for (let turns = 0; turns < 10; turns += 1) await setImmediate();
    // What is left of the last read counts too.
    assert.ok(socket.bytesRead - before < 2 * MAX_DISCARDED_BYTES, `${socket.bytesRead - before} bytes`);
  });

test('connection above the limit whose client closes it → closed at once', async (t) => {
  const { url, accepted } = await rejectAll(t);
  // Without the timer that closes a connection whose client stays.
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const wire = openWire(url);
  wire.send(REQUEST);
  const socket = await accepted;
  if (!socket.destroyed) await once(socket, 'close');
  assert.match(String(await wire.rest()), /"error":50301/);
});

test('connection above the limit whose client stays → closed soon', async (t) => {
  const { port, accepted } = await rejectAll(t);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const client = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).resume();
  t.after(() => client.destroy());
  const socket = await accepted;
  await once(client, 'end');
  assert.equal(socket.destroyed, false);
  t.mock.timers.tick(LINGER_MS);
  assert.equal(socket.destroyed, true);
});

test('connection above the limit whose client resets it → the service continues', async (t) => {
  const { url, port } = await rejectAll(t);
  for (let time = 0; time < 50; time += 1) {
    const client = connect(port, '127.0.0.1');
    await once(client, 'connect');
    client.write('x'.repeat(1_000));
    if (time % 2 === 0) await once(client, 'data');
    client.resetAndDestroy();
  }
  assert.match(String(await openWire(url).rest()), /"error":50301/);
});

test('more connections above the limit than get an error response at once → closed without one, until others are closed', async (t) => {
  needOpenFiles(2 * MAX_REJECTED);
  const { url, port } = await rejectAll(t);
  // So that connections whose clients stay remain open.
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const clients: Socket[] = [];
  const closeAll = (): void => {
    for (const client of clients) client.destroy();
  };
  t.after(closeAll);
  const receive = async (): Promise<string> => {
    const client = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).setEncoding('latin1');
    clients.push(client);
    let received = '';
    client.on('data', (text) => {
      received += text;
    });
    await once(client, 'end');
    return received;
  };
  for (let rejected = 0; rejected < MAX_REJECTED; rejected += 50) {
    const all = await Promise.all(Array.from({ length: 50 }, receive));
    for (const response of all) assert.match(response, /"error":50301/);
  }
  assert.equal(await receive(), '');
  t.mock.timers.reset();
  closeAll();
  await until(async () => /"error":50301/.test(String(await openWire(url).rest())));
});

test('body of a request whose headers are still checked → stays unparsed, and is counted', async (t) => {
  const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
  const taken = Promise.withResolvers<readonly [IncomingMessage, ServerResponse]>();
  const listener = listenerOf(t, connections, undefined, (...pair) => taken.resolve(pair));
  const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(listener)}`);
  t.after(() => wire.destroy());
  const length = 4 * UNCOUNTED_INPUT_BYTES;
  wire.send('POST / HTTP/1.1\r\nHost: plants.test\r\nTransfer-Encoding: chunked\r\n\r\n');
  const [request, response] = await taken.promise;
  wire.send(
    `${BYTES_PER_PIECE.toString(16)}\r\n${'x'.repeat(BYTES_PER_PIECE)}\r\n`.repeat(length / BYTES_PER_PIECE),
  );
  await until(() => connections.counted > 0);
  assert.equal(request.readableLength, 0);
  let received = 0;
  request.on('data', (piece: Buffer) => {
    received += piece.length;
  });
  request.on('end', () => response.end());
  acceptBody(response);
  wire.send('0\r\n\r\n');
  assert.equal(await statusOf(wire), 200);
  assert.deepEqual([received, connections.counted], [length, 0]);
});

/** More than the parser gets before the dispatch of its request. */
const LONG_BODY = 3_000;
const UPLOAD = `POST / HTTP/1.1\r\nHost: plants.test\r\nTransfer-Encoding: chunked\r\n\r\n${LONG_BODY.toString(16)}\r\n${'x'.repeat(LONG_BODY)}\r\n0\r\n\r\n`;

/** Answers a request with the length of its body, which it accepts after some event-loop iterations. */
async function countBody(
  request: IncomingMessage,
  response: ServerResponse,
  iterations: number,
): Promise<void> {
  for (let left = iterations; left > 0; left -= 1) await setImmediate();
  let length = 0;
  request.on('data', (piece: Buffer) => {
    length += piece.length;
  });
  request.on('end', () => response.end(String(length)));
  if (!request.complete) acceptBody(response);
}

test('body that arrives slowly → the time until an idle connection closes begins after its response', async (t) => {
  const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
  const handler: RequestListener = (request, response) =>
    void (request.method === 'GET' ? response.end() : countBody(request, response, 0));
  // Shorter than the timeout of a request.
  const keepAliveTimeout = 5_000;
  const listener = listenerOf(t, connections, undefined, handler, { keepAliveTimeout });
  const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(listener)}`);
  t.after(() => wire.destroy());
  wire.send(UPLOAD.slice(0, -1));
  await until(() => connections.all[0]?.isIdle === false);
  const [connection] = connections.all;
  assert.ok(connection !== undefined);
  for (let ticks = 0; ticks < (2 * keepAliveTimeout) / TICK_MS; ticks += 1) connection.tick();
  wire.send(UPLOAD.slice(-1));
  assert.equal(await statusOf(wire), 200);
  await until(() => connection.isIdle);
  connection.tick();
  wire.send(REQUEST);
  assert.equal(await statusOf(wire), 200);
});

for (const protocol of ['http', 'https'])
  for (const iterations of [0, 1, 20])
    for (const [what, sent, lengths] of [
      ['alone', UPLOAD, [LONG_BODY]],
      ['between other requests', REQUEST + UPLOAD + REQUEST, [0, LONG_BODY, 0]],
    ] as const)
      test(`${protocol}: body ${what}, accepted after ${iterations} iterations, then FIN → arrives whole`, async (t) => {
        const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
        const tls = protocol === 'https' ? openTls(CERTIFICATE, KEY, { event: () => undefined }) : undefined;
        const listener = listenerOf(t, connections, tls, (request, response) => {
          if (request.method === 'GET') response.end('0');
          else void countBody(request, response, iterations);
        });
        const wire = openWire(`${protocol}://127.0.0.1:${await listenOnFreePort(listener)}`);
        t.after(() => wire.destroy());
        wire.send(sent);
        wire.end();
        const received: number[] = [];
        for (const _length of lengths) received.push(Number((await wire.answer())?.body));
        assert.deepEqual(received, lengths);
        assert.equal((await wire.rest()).length, 0);
      });

test('client reads on after a stall, and its next request is in flight → it makes no way', async (t) => {
  const connections = new OpenConnections(1, limits.sendBufferLimit);
  const body = Buffer.alloc(16 * 1024 * 1024);
  const held: ServerResponse[] = [];
  const listener = listenerOf(t, connections, undefined, (request, response) => {
    if (request.url === '/held') held.push(response);
    else response.end(body);
  });
  t.mock.timers.enable({ apis: ['setInterval'] });
  const client = connect(await listenOnFreePort(listener), '127.0.0.1').pause();
  t.after(() => client.destroy());
  client.write(REQUEST);
  await until(() => (connections.all[0]?.socket.writableLength ?? 0) > 0);
  const [connection] = connections.all;
  for (let ticks = 0; ticks < 2 * STALLED_TICKS + 2; ticks += 1) {
    connection?.tick();
    connection?.checkSendQueue(() => 1, 0);
  }
  assert.equal(connection?.mayBeEvicted, true, 'while it reads nothing');
  client.resume();
  await until(() => connection?.isIdle === true);
  client.write(REQUEST.replace('/', '/held'));
  await until(() => held.length === 1);
  assert.equal(connection?.mayBeEvicted, false);
  assert.equal(connections.makeRoom(), false);
});

test('idle connection whose client still reads its response → stays open; closed when it reads no more', async (t) => {
  const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
  const url = `http://127.0.0.1:${await listenOnFreePort(listenerOf(t, connections))}`;
  const wire = openWire(url);
  t.after(() => wire.destroy());
  wire.send(REQUEST);
  assert.equal((await wire.answer())?.status, 200);
  const [connection] = connections.all;
  const enough = 2 * Math.ceil(limits.keepAliveTimeout / TICK_MS);
  const tickAndLook = (unread: number): void => {
    connection?.tick();
    connection?.checkSendQueue(() => unread, 0);
  };
  for (let unread = enough; unread > 0; unread -= 1) tickAndLook(unread);
  assert.equal(connection?.socket.destroyed, false);
  const timeout = Math.ceil(limits.writeTimeout / TICK_MS);
  for (let ticks = 0; ticks <= timeout; ticks += 1) connection?.tick();
  connection?.checkSendQueue(() => 1, timeout);
  assert.equal(connection?.socket.destroyed, false, 'a long read of the send queues began before');
  tickAndLook(1);
  assert.equal(connection?.socket.destroyed, true);
});

test('more unsent bytes than the limit → the connection that stalls longest is closed, the others stay', async (t) => {
  const mebibyte = 1_024 * 1_024;
  const connections = new OpenConnections(limits.maxConnections, 20 * mebibyte);
  const closed: (string | undefined)[] = [];
  const listener = createHttpServer((request, response) => void response.end(bodyOf(request.url)), {
    limits,
    tls: undefined,
    connections,
    waitToParse: () => undefined,
    waitToReject: () => undefined,
    reportRejection: (error) => renderRawError(toApiError(error), {}),
    onClosed: (response) => {
      if (!response.writableFinished && response.isNotRead) closed.push(response.req.url);
    },
    onHandshakeFailed: () => undefined,
  });
  const port = await listenOnFreePort(listener);
  // Neither client reads. The kernel takes a few mebibytes of each response.
  const sockets = [connect(port, '127.0.0.1'), connect(port, '127.0.0.1')];
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    listener.close();
  });
  // The one that connected last stalls for longer.
  for (const [index, socket] of sockets.toReversed().entries()) {
    socket.write(`GET /long/${index} HTTP/1.1\r\nHost: plants.test\r\n\r\n`);
    await until(() => {
      const stalled = connections.all.filter((connection) => {
        connection.tick();
        return connection.sendProgress.stalledTicks >= 5;
      });
      return stalled.length > index || closed.length > 0;
    });
  }
  await until(() => closed.length > 0);
  const wire = openWire(`http://127.0.0.1:${port}`);
  wire.send('GET /short HTTP/1.1\r\nHost: plants.test\r\n\r\n');
  assert.equal((await wire.answer())?.status, 200);
  wire.destroy();
  assert.deepEqual(closed, ['/long/0']);

  function bodyOf(url = ''): Buffer {
    return Buffer.alloc(url === '/short' ? 0 : 16 * mebibyte);
  }
});

type Cut = (t: TestContext, all: OpenConnections, connection: Connection, response: ServerResponse) => void;

/** Ways in which the service ends a response before its end. */
const cuts: readonly (readonly [string, Cut])[] = [
  ['breaks off', (_t, _all, _connection, response) => response.destroy()],
  ['is in progress at the deadline of a stop', (_t, all) => all.destroy()],
  [
    'stalls longest above the limit on unsent bytes',
    (t, _all, { socket }) => {
      while (!socket.destroyed) t.mock.timers.tick(TICK_MS);
    },
  ],
  [
    'is not read until the write timeout',
    (_t, _all, connection) => {
      while (!connection.socket.destroyed) {
        connection.tick();
        connection.checkSendQueue(() => 1, 0);
      }
    },
  ],
];

for (const protocol of ['http', 'https'])
  for (const version of ['1.0', '1.1'])
    for (const [what, cut] of cuts)
      test(`${protocol}: response to HTTP/${version} that ${what} → reset`, async (t) => {
        t.mock.timers.enable({ apis: ['setInterval'] });
        const connections = new OpenConnections(limits.maxConnections, 0);
        const tls = protocol === 'https' ? openTls(CERTIFICATE, KEY, { event: () => undefined }) : undefined;
        const responses: ServerResponse[] = [];
        const listener = listenerOf(t, connections, tls, (_request, response) => {
          // More than the kernel buffers.
          response.write(Buffer.alloc(16 * 1_024 * 1_024));
          responses.push(response);
        });
        const address = { port: await listenOnFreePort(listener), host: '127.0.0.1' };
        const client =
          tls === undefined ? connect(address) : connectTls({ ...address, rejectUnauthorized: false });
        t.after(() => client.destroy());
        client.write(`GET / HTTP/${version}\r\nHost: plants.test\r\n\r\n`);
        await once(client, 'readable');
        const [[connection], [response]] = [connections.all, responses];
        assert.ok(connection !== undefined && response !== undefined);
        cut(t, connections, connection, response);
        await assert.rejects(once(client.resume(), 'close'), { code: 'ECONNRESET' });
      });

test('pipelined requests above the limit on their memory → 50301 and closed; short ones are accepted', async (t) => {
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  const held: ServerResponse[] = [];
  let isHolding = true;
  const listener = listenerOf(t, connections, undefined, (_request, response) => {
    if (isHolding) held.push(response);
    else response.end();
  });
  const url = `http://127.0.0.1:${await listenOnFreePort(listener)}`;
  const sendPipelines = (connectionCount: number, requests: number): Wire[] =>
    Array.from({ length: connectionCount }, () => {
      const wire = openWire(url);
      t.after(() => wire.destroy());
      wire.send(REQUEST.repeat(requests));
      return wire;
    });
  // Each fills one read of its socket.
  const inARead = Math.floor(65_536 / REQUEST.length);
  const tooMany = 2 * Math.ceil(MAX_UNPARSED_BYTES / 65_536);
  needOpenFiles(2 * tooMany);
  const long = sendPipelines(tooMany, inARead);
  await until(() => held.length === long.length);
  const short = sendPipelines(1, Math.floor(UNCOUNTED_INPUT_BYTES / REQUEST.length));
  await until(() => held.length === long.length + short.length);
  isHolding = false;
  for (const response of held) response.end();
  const answers = await Promise.all(
    [...short, ...long].map(async (wire) => [(await wire.answer())?.status, await statusOf(wire)]),
  );
  assert.ok(answers.every(([first]) => first === 200));
  assert.equal(answers[0]?.[1], 200);
  const rejected = answers.filter(([, second]) => second === 503).length;
  assert.ok(rejected > 0 && rejected < tooMany * 0.75, `${rejected} of ${tooMany} are rejected`);
  for (const wire of [...short, ...long]) wire.destroy();
  await until(() => connections.size === 0);
  // The memory is free again.
  for (const wire of sendPipelines(tooMany / 4, inARead)) {
    assert.equal(await statusOf(wire), 200);
    assert.equal(await statusOf(wire), 200);
  }
});

for (const [inFlight, waiting] of [
  ['HEAD', 'GET'],
  ['GET', 'HEAD'],
] as const)
  test(`${waiting} requests above the limit on their memory, behind a ${inFlight} → the 50301 is that of a ${waiting}`, async (t) => {
    const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
    const held: ServerResponse[] = [];
    const listener = listenerOf(t, connections, undefined, (_request, response) => void held.push(response));
    const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(listener)}`);
    wire.send(REQUEST.replace('GET', inFlight) + REQUEST.replace('GET', waiting).repeat(200));
    await until(() => held.length === 1);
    connections.countInput(LATER, MAX_UNPARSED_BYTES);
    held[0]?.end();
    const all = String(await wire.rest());
    assert.equal(/"error":50301/.test(all), waiting === 'GET', all);
    assert.match(all, /HTTP\/1\.1 503 .*\r\nRetry-After: 1\r\n/s);
  });

for (const [what, begins, ends] of [
  ['a request line', 'GET /', REQUEST.slice('GET /'.length)],
  ['headers', `${REQUEST.slice(0, -2)}X-Long: `, '\r\n\r\n'],
  ['trailers', `${REQUEST.slice(0, -2)}Transfer-Encoding: chunked\r\n\r\n0\r\nX-Long: `, '\r\n\r\n'],
] as const)
  test(`half of ${what} above the limit on its memory → 50301 for the oldest, even if it grows; a whole one releases it`, async (t) => {
    const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
    const listener = listenerOf(t, connections, undefined, answerOrReceive);
    const url = `http://127.0.0.1:${await listenOnFreePort(listener)}`;
    const begin = (bytes: number): Wire => {
      const wire = openWire(url);
      t.after(() => wire.destroy());
      wire.send(begins.padEnd(bytes, 'x'));
      return wire;
    };
    const end = async (wire: Wire): Promise<number | undefined> => {
      wire.send(ends);
      return statusOf(wire);
    };
    const long = 3 * UNCOUNTED_INPUT_BYTES;
    const first = begin(long);
    await until(() => connections.counted > UNCOUNTED_INPUT_BYTES);
    const ofOne = connections.counted;
    const second = begin(long);
    await until(() => connections.counted === 2 * ofOne);
    first.send('x');
    await until(() => connections.counted === 2 * ofOne + 1);
    // Leaves room for one.
    connections.countInput(LATER, MAX_UNPARSED_BYTES - ofOne);
    assert.equal(await statusOf(first), 503);
    const short = begin(UNCOUNTED_INPUT_BYTES);
    assert.equal(await end(short), 200);
    // The parser keeps no empty lines.
    const empty = openWire(url);
    empty.send('\r\n'.repeat(UNCOUNTED_INPUT_BYTES) + REQUEST);
    assert.equal(await statusOf(empty), 200);
    empty.destroy();
    assert.equal(await end(second), 200);
    assert.equal(await end(begin(long)), 200);
    await until(() => connections.counted === MAX_UNPARSED_BYTES - ofOne);
  });

test('headers without the body above the limit on their memory, tiny ones → 50301 for the oldest; a whole request releases it', async (t) => {
  const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
  const listener = listenerOf(t, connections, undefined, answerOrReceive);
  const url = `http://127.0.0.1:${await listenOnFreePort(listener)}`;
  const begin = (fields: number): Wire => {
    const wire = openWire(url);
    t.after(() => wire.destroy());
    wire.send(`POST / HTTP/1.1\r\nHost: plants.test\r\nContent-Length: 2\r\n${'X:\r\n'.repeat(fields)}\r\n`);
    return wire;
  };
  const many = MAX_FIELDS - 2;
  const first = begin(many);
  await until(() => connections.counted > UNCOUNTED_INPUT_BYTES);
  const ofOne = connections.counted;
  const second = begin(many);
  await until(() => connections.counted === 2 * ofOne);
  first.send('x');
  const few = begin(10);
  // Leaves room for one.
  connections.countInput(LATER, MAX_UNPARSED_BYTES - ofOne);
  assert.equal(await statusOf(first), 503);
  for (const wire of [few, second]) {
    wire.send('xx');
    assert.equal(await statusOf(wire), 200);
  }
  await until(() => connections.counted === MAX_UNPARSED_BYTES - ofOne);
});

/** A connection from the address of the clients whose input begins to wait last, so that it is rejected last. */
const LATER = { address: '127.0.0.1', rejectInput: () => assert.fail(), waitsForClient: false };

/** Responds when the request has arrived, or to its error. */
function answerOrReceive(request: IncomingMessage, response: ServerResponse): void {
  assert.ok(response instanceof BatchedResponse);
  response.onReceiveError = (error) =>
    void response.writeHead(Math.floor(toApiError(error).code / 100)).end();
  if (request.complete) response.end();
  else {
    response.acceptBody();
    request.resume().once('end', () => response.end());
  }
}

/** Sends a request to a listener that keeps its response. Resolves once the listener has the request. */
async function holdOneRequest(t: TestContext, connections: ConnectionRegistry) {
  const { held, handler } = holdRequests();
  const port = await listenOnFreePort(listenerOf(t, connections, undefined, handler));
  const wire = openWire(`http://127.0.0.1:${port}`);
  t.after(() => wire.destroy());
  wire.send(HELD_REQUEST);
  await until(() => held.length === 1);
  return { held, wire };
}

/** Returns a handler that keeps the responses to requests of `/held`, and ends all others. */
function holdRequests(): { readonly held: readonly ServerResponse[]; readonly handler: RequestListener } {
  const held: ServerResponse[] = [];
  return {
    held,
    handler: ({ url }, response) => {
      if (url === '/held') held.push(response);
      else response.end();
    },
  };
}

function acceptBody(response: ServerResponse): void {
  assert.ok(response instanceof BatchedResponse);
  response.acceptBody();
}

async function statusOf(wire: Wire): Promise<number | undefined> {
  return (await wire.answer())?.status;
}

/** Starts a listener that accepts no connection. `accepted` resolves to its side of the first one. */
async function rejectAll(t: TestContext): Promise<{ url: string; port: number; accepted: Promise<Socket> }> {
  const listener = listenerOf(t, new ConnectionRegistry(0, limits.sendBufferLimit));
  const port = await listenOnFreePort(listener);
  const accepted = once(listener, 'connection').then(([socket]) => socket);
  return { url: `http://127.0.0.1:${port}`, port, accepted };
}

/** Starts a TLS listener, and a client that connects to it and sends nothing. */
async function beginHandshake(
  t: TestContext,
  limit = limits.maxConnections,
  handler?: RequestListener,
  headerTimeout?: number,
): Promise<{ listener: Server; connections: ConnectionRegistry; silent: Socket; url: string }> {
  const connections = new ConnectionRegistry(limit, limits.sendBufferLimit);
  const tls = openTls(CERTIFICATE, KEY, { event: () => undefined });
  const listener = listenerOf(t, connections, tls, handler, { headerTimeout });
  const port = await listenOnFreePort(listener);
  const accepted = once(listener, 'connection');
  const silent = connect(port, '127.0.0.1');
  t.after(() => silent.destroy());
  await accepted;
  assert.equal(connections.size, 1);
  return { listener, connections, silent, url: `https://127.0.0.1:${port}` };
}

/** Creates a listener that stops after the test. By default each request gets an empty response. */
function listenerOf(
  t: TestContext,
  connections: ConnectionRegistry,
  tls?: Tls,
  handler: RequestListener = (_request, response) => void response.end(),
  {
    headerTimeout = 2 * PATIENCE_MS,
    keepAliveTimeout = limits.keepAliveTimeout,
  }: { readonly headerTimeout?: number | undefined; readonly keepAliveTimeout?: number } = {},
): Server {
  const listener = createHttpServer(handler, {
    limits: { ...limits, headerTimeout, keepAliveTimeout },
    tls,
    connections,
    waitToParse: () => undefined,
    waitToReject: () => undefined,
    reportRejection: (error) => renderRawError(toApiError(error), {}),
    onClosed: () => undefined,
    onHandshakeFailed: () => undefined,
  });
  t.after(() => {
    connections.destroy();
    listener.close();
  });
  return listener;
}
