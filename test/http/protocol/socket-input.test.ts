import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { connect, createServer, Socket } from 'node:net';
import { test } from 'node:test';
import { keepInput, shareInput, takeParser } from '../../../src/http/protocol/connection/socket-input.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';

// Fails after an update of Node that changes the internals: the service would work, but use more CPU.
test('two sockets → both read into the same memory, and kept bytes are copied', async (t) => {
  const kept: Buffer[] = [];
  const memories = new Set<ArrayBufferLike>();
  const server = createServer((socket) => {
    shareInput(socket, (chunk) => {
      memories.add(chunk.buffer);
      kept.push(keepInput(chunk));
      socket.end();
    });
    socket.on('data', () => assert.fail('the socket reads into separate memory'));
  });
  const port = await listenOnFreePort(server);
  t.after(() => server.close());
  for (const text of ['Alder', 'Birch']) {
    const client = connect(port, '127.0.0.1');
    client.end(text);
    await once(client.resume(), 'close');
  }
  assert.equal(memories.size, 1);
  assert.deepEqual(kept.map(String), ['Alder', 'Birch']);
  const own = Buffer.allocUnsafeSlow(10).fill('Cedar');
  assert.equal(keepInput(own), own);
  assert.equal(keepInput(own.subarray(5)).buffer, own.buffer);
  const small = keepInput(own.subarray(6));
  assert.deepEqual([small.length, small.buffer.byteLength], [4, 4]);
});

test('socket without a connection → unchanged: it later emits its input', async (t) => {
  const server = createServer((accepted) => void accepted.end('Alder'));
  const port = await listenOnFreePort(server);
  t.after(() => server.close());
  const socket = new Socket();
  shareInput(socket, () => assert.fail('the socket reads into the shared memory'));
  socket.connect(port, '127.0.0.1');
  const [bytes] = await once(socket, 'data');
  assert.equal(String(bytes), 'Alder');
  socket.destroy();
});

for (const event of ['data', 'end'])
  test(`Node's server has no listener for ${event} → its parser is not taken`, async (t) => {
    const server = createHttpServer();
    t.after(() => server.close());
    const accepted = once(server, 'connection');
    const client = connect(await listenOnFreePort(server), '127.0.0.1');
    t.after(() => client.destroy());
    const [socket] = await accepted;
    assert.ok(socket instanceof Socket);
    socket.removeAllListeners(event);
    assert.throws(() => takeParser(socket), { message: `Node's server has no ${event} listener` });
  });
