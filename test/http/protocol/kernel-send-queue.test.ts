import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { connect, createServer, type Server, Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { readSendQueues } from '../../../src/http/protocol/connection/kernel-send-queue.ts';
import { codeOf } from '../../../src/thrown-errors.ts';
import { hasIpv6, needs } from '../../support/needs.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';

const LINUX = needs('Linux', process.platform === 'linux');
/** The kernel lists both ends of each, 27 to a page. */
const CONNECTIONS = 400;
const MIN_PAGES = 29;
/** More than the kernel buffers for a client that does not read. */
const UNREAD = Buffer.alloc(32 * 1_024 * 1_024);

test('reads of the send queues leave no file open', LINUX, async () => {
  await readSendQueues();
  const before = readdirSync('/proc/self/fd').length;
  for (let reads = 0; reads < 20; reads += 1) await readSendQueues();
  assert.equal(readdirSync('/proc/self/fd').length, before);
});

test(
  'many connections → their send queues are read page by page; the event loop runs in between',
  LINUX,
  async (t) => {
    const [first, second] = await acceptSockets(t);
    assert.ok(first !== undefined && second !== undefined);
    first.write(UNREAD);
    let iterations = 0;
    const iterate = (): void => {
      iterations += 1;
      next = setImmediate(iterate);
    };
    let next = setImmediate(iterate);
    const { of: sendQueueOf } = await readSendQueues();
    clearImmediate(next);
    assert.ok(iterations >= MIN_PAGES, `${iterations} iterations`);
    assert.ok((sendQueueOf(first) ?? 0) > 0);
    assert.equal(sendQueueOf(second), undefined);
  },
);

test('call during a read of the send queues → shares it; later call → a new read', async () => {
  const [one, other] = await Promise.all([readSendQueues(), readSendQueues()]);
  assert.equal(one, other);
  assert.notEqual(await readSendQueues(), one);
});

for (const [title, needed, address, host] of [
  ['port of three hexadecimal digits', LINUX, '127.0.0.1', '127.0.0.1'],
  ['IPv6', { ...LINUX, ...needs('IPv6', hasIpv6()) }, '::1', '::1'],
  ['IPv4 client of an IPv6 listener', { ...LINUX, ...needs('IPv6', hasIpv6()) }, '::', '127.0.0.1'],
] as const)
  test(`${title} → its send queue is found`, needed, async (t) => {
    const server = createServer();
    t.after(() => server.close());
    const accepted = once(server, 'connection');
    const client = connect(await listenOnLowPort(server, address), host).pause();
    t.after(() => client.destroy());
    const [socket] = await accepted;
    assert.ok(socket instanceof Socket);
    t.after(() => socket.destroy());
    socket.write(UNREAD);
    assert.ok(((await readSendQueues()).of(socket) ?? 0) > 0);
  });

test('link-local address with any zone → no send queue, no error', async () => {
  const socket = Object.defineProperties(new Socket(), {
    localAddress: { value: 'fe80::1%br-lan.7' },
    localPort: { value: 1 },
    remoteAddress: { value: 'fe80::2%br-lan.7' },
    remotePort: { value: 2 },
  });
  assert.equal((await readSendQueues()).of(socket), undefined);
});

/** Makes a server listen on a port below 4,096. Resolves to the port. */
async function listenOnLowPort(server: Server, address: string): Promise<number> {
  const port = randomInt(1_024, 4_096);
  try {
    await once(server.listen(port, address), 'listening');
    return port;
  } catch (error: unknown) {
    if (codeOf(error) === 'EADDRINUSE') return listenOnLowPort(server, address);
    throw error;
  }
}

/** Resolves to the accepted ends of many connections. Their clients read nothing. */
async function acceptSockets(t: TestContext): Promise<readonly Socket[]> {
  const server = createServer();
  const port = await listenOnFreePort(server);
  const sockets: Socket[] = [];
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  while (sockets.length < 2 * CONNECTIONS) {
    const accepted = once(server, 'connection');
    const client = connect(port, '127.0.0.1').pause();
    const [socket] = await accepted;
    sockets.unshift(socket);
    sockets.push(client);
  }
  return sockets;
}
