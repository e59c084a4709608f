import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { limitsOf, loadConfig } from '../../../src/config.ts';
import { Connections } from '../../../src/http/protocol/connection-registry.ts';
import { createListener } from '../../../src/http/protocol/http-server.ts';
import { openWire } from '../../support/clients/raw-connection.ts';
import { until } from '../../support/patience.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';

const limits = limitsOf(loadConfig({}, {}));

test('no connection is open → empty at once', async () => {
  await new Connections(limits.connections, limits.unsent).whenEmpty();
});

test('connections are open → empty when the last one closes', async (t) => {
  const connections = new Connections(limits.connections, limits.unsent);
  const listener = createListener((_request, response) => void response.end(), {
    limits,
    tls: undefined,
    connections,
    renderError: String,
    onClosed: () => undefined,
    onHandshakeFailed: () => undefined,
  });
  const url = `http://127.0.0.1:${await listenOnFreePort(listener)}`;
  t.after(() => listener.close());
  const wires = [openWire(url), openWire(url)];
  for (const wire of wires) {
    wire.send('GET / HTTP/1.1\r\nHost: plants.test\r\n\r\n');
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

test('more unsent bytes than the limit → the connection that stalls longest is closed, the others stay', async (t) => {
  const mebibyte = 1_024 * 1_024;
  const connections = new Connections(limits.connections, 20 * mebibyte);
  let closed = 0;
  const listener = createListener((request, response) => void response.end(bodyOf(request.url)), {
    limits,
    tls: undefined,
    connections,
    renderError: String,
    onClosed: (response) => {
      closed += response.writableFinished ? 0 : 1;
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
  for (const socket of sockets) socket.write('GET /long HTTP/1.1\r\nHost: plants.test\r\n\r\n');
  await until(() => closed > 0);
  const wire = openWire(`http://127.0.0.1:${port}`);
  wire.send('GET /short HTTP/1.1\r\nHost: plants.test\r\n\r\n');
  assert.equal((await wire.answer())?.status, 200);
  wire.destroy();
  assert.equal(closed, 1);

  function bodyOf(url = ''): Buffer {
    return Buffer.alloc(url === '/long' ? 16 * mebibyte : 0);
  }
});
