import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { loadConfig } from '../../../src/config.ts';
import { renderRawError, toApiError } from '../../../src/http/error-response.ts';
import { ConnectionRegistry, TICK_MS } from '../../../src/http/protocol/connection/connection-registry.ts';
import type { Connection } from '../../../src/http/protocol/connection/http-connection.ts';
import { createHttpServer } from '../../../src/http/protocol/http-server.ts';
import { openWire } from '../../support/clients/raw-connection.ts';
import { until } from '../../support/patience.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';

const limits = loadConfig({}, {});
const REQUEST = 'GET / HTTP/1.1\r\nHost: plants.test\r\n\r\n';
const BODY = 'POST / HTTP/1.1\r\nHost: plants.test\r\nContent-Length: 2\r\n\r\n{}';

class OpenConnections extends ConnectionRegistry {
  readonly all: Connection[] = [];

  override add(connection: Connection): void {
    this.all.push(connection);
    super.add(connection);
  }
}

/** Opens a connection to a server whose event loop is busy, sends bytes, and waits until the server has read them. */
async function sendToBusyServer(t: TestContext, bytes: string, holdsRejections = false) {
  const connections = new OpenConnections(limits.maxConnections, limits.sendBufferLimit);
  const turns: (() => void)[] = [];
  const rejections: (() => void)[] = [];
  let isBusy = true;
  let dispatched = 0;
  const server = createHttpServer(
    (request, response) => {
      dispatched += 1;
      request.resume();
      response.end(request.method);
    },
    {
      ...{ limits, tls: undefined, connections },
      waitToReject: () => (holdsRejections ? new Promise((resolve) => rejections.push(resolve)) : undefined),
      waitToParse: () => (isBusy ? new Promise((resolve) => turns.push(resolve)) : undefined),
      reportRejection: (error) => renderRawError(toApiError(error), {}),
      onClosed: () => undefined,
      onHandshakeFailed: () => undefined,
    },
  );
  const wire = openWire(`http://127.0.0.1:${await listenOnFreePort(server)}`);
  t.after(() => {
    wire.destroy();
    connections.destroy();
    server.close();
  });
  const isRead = async (sent: string): Promise<void> => {
    isBusy = true;
    wire.send(sent);
    await until(() => turns.length === 1);
  };
  await isRead(bytes);
  const [connection] = connections.all;
  assert.ok(connection !== undefined);
  assert.equal(connection.isIdle, false, 'not closed to make room');
  assert.equal(connection.waitsForClient, false, 'not rejected first');
  assert.equal(dispatched, 0);
  return {
    connection,
    connections,
    wire,
    isRead,
    rejections,
    dispatched: () => dispatched,
    giveTurn: (): void => {
      isBusy = false;
      for (const turn of turns.splice(0)) turn();
    },
  };
}

const COMPLETE = [
  ['a request', REQUEST, ['GET']],
  ['a pipeline', REQUEST + BODY + REQUEST, ['GET', 'POST', 'GET']],
] as const;

for (const [what, bytes, methods] of COMPLETE)
  test(`event loop is busy → ${what} waits unparsed for its turn, and is then executed`, async (t) => {
    const { connection, wire, giveTurn } = await sendToBusyServer(t, bytes);
    giveTurn();
    for (const method of methods) assert.equal(String((await wire.answer())?.body), method);
    await until(() => connection.isIdle);
    wire.send(REQUEST);
    assert.equal(String((await wire.answer())?.body), 'GET');
  });

const ENDS = [
  ['complete', REQUEST, 200],
  ['incomplete', REQUEST.slice(0, 20), 400],
] as const;

for (const [what, bytes, status] of ENDS)
  test(`client ends its side while its ${what} request waits for a turn → ${status}, then closed`, async (t) => {
    const { connection, wire, giveTurn } = await sendToBusyServer(t, bytes);
    wire.end();
    giveTurn();
    assert.equal((await wire.answer())?.status, status);
    assert.equal(await wire.answer(), undefined);
    await until(() => connection.socket.destroyed);
  });

test('input is rejected while it waits for a turn → 50301 and closed; the turn does nothing', async (t) => {
  const { connection, wire, dispatched, giveTurn } = await sendToBusyServer(t, REQUEST);
  connection.rejectInput();
  giveTurn();
  assert.equal((await wire.answer())?.status, 503);
  assert.equal(await wire.answer(), undefined);
  assert.equal(dispatched(), 0);
});

for (const [what, reject, status] of [
  ['its input is rejected', (connection: Connection) => connection.rejectInput(), 503],
  ['its time is over', passTimeout, 408],
] as const)
  test(`event loop is busy with error responses when ${what} → no byte is parsed, one response at its turn`, async (t) => {
    const { connection, wire, rejections, dispatched, giveTurn } = await sendToBusyServer(t, 'GET', true);
    giveTurn();
    await until(() => connection.waitsForClient);
    reject(connection);
    passTimeout(connection);
    wire.send(REQUEST.slice(3));
    await until(() => connection.socket.bytesRead === REQUEST.length);
    assert.equal(wire.surplus(), 0);
    assert.equal(rejections.length, 1);
    for (const report of rejections) report();
    assert.equal((await wire.answer())?.status, status);
    assert.equal(await wire.answer(), undefined);
    assert.equal(dispatched(), 0);
  });

test('second part of a head is rejected while it waits for a turn → the response fits the method of the first', async (t) => {
  const { connection, wire, giveTurn, isRead } = await sendToBusyServer(
    t,
    'GET / HTTP/1.1\r\nHost: plants.test\r\nX-Why: ',
  );
  giveTurn();
  await until(() => connection.waitsForClient);
  await isRead('HEAD of line\r\n\r\n');
  connection.rejectInput();
  const { status, body } = (await wire.answer()) ?? assert.fail('no response');
  assert.equal(status, 503);
  assert.match(String(body), /50301/);
});

function passTimeout(connection: Connection): void {
  for (let ticks = 0; ticks <= limits.headerTimeout / TICK_MS + 1; ticks += 1) connection.tick();
}

test('request waits for a turn for longer than the timeout of headers → executed', async (t) => {
  const { connection, wire, giveTurn } = await sendToBusyServer(t, REQUEST);
  passTimeout(connection);
  giveTurn();
  assert.equal((await wire.answer())?.status, 200);
});

test('stop while a request waits for a turn → executed, then closed', async (t) => {
  const { connections, wire, giveTurn } = await sendToBusyServer(t, REQUEST);
  const closed = connections.closeWhenIdle();
  giveTurn();
  assert.equal((await wire.answer())?.status, 200);
  assert.equal(await wire.answer(), undefined);
  await closed;
});

test('connection is closed while its request waits for a turn → not executed', async (t) => {
  const { connection, wire, dispatched, giveTurn } = await sendToBusyServer(t, REQUEST);
  connection.socket.destroy();
  wire.destroy();
  await until(() => connection.socket.closed);
  giveTurn();
  await setImmediate();
  assert.equal(dispatched(), 0);
});
