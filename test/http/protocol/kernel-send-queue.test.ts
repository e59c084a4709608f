import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer, type Server, Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { readSendQueues, SendProgress } from '../../../src/http/protocol/connection/kernel-send-queue.ts';
import { codeOf } from '../../../src/thrown-errors.ts';
import { hasIpv6, needs } from '../../support/needs.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';

const LINUX = needs('Linux', process.platform === 'linux');
/** The kernel lists both ends of each, 27 to a page. */
const CONNECTIONS = 400;
const MIN_PAGES = 29;
/** More than the kernel buffers for a client that does not read. */
const UNREAD = Buffer.alloc(32 * 1_024 * 1_024);

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

const TIMEOUT = 10;

/** The progress of a client. By default each tick finds the same unsent bytes. */
function observe(): { readonly progress: SendProgress; readonly accept: () => void } {
  let bytesWritten = 0;
  const socket = Object.defineProperties(new Socket(), {
    writableLength: { value: 1 },
    bytesWritten: { get: () => bytesWritten },
  });
  const accept = (): void => {
    bytesWritten += 1;
  };
  return { progress: new SendProgress(socket, TIMEOUT), accept };
}

test('client that accepted bytes for longer than the timeout, then none for a tick → not stalled', () => {
  const { progress, accept } = observe();
  for (let ticks = 0; ticks < 3 * TIMEOUT; ticks += 1) {
    accept();
    progress.tick();
  }
  for (let ticks = 0; ticks < 2; ticks += 1) {
    progress.tick();
    progress.noteQueue(() => 5, 0);
    assert.equal(progress.hasStalled, false);
  }
});

test('send queue that has become shorter → the timeout begins again', () => {
  const { progress } = observe();
  const stallsWith = (queue: number): boolean => {
    progress.tick();
    progress.noteQueue(() => queue, 0);
    return progress.hasStalled;
  };
  for (let queue = 3 * TIMEOUT; queue > 0; queue -= 1) assert.equal(stallsWith(queue), false);
  for (let ticks = 2; ticks < TIMEOUT; ticks += 1) assert.equal(stallsWith(1), false);
  assert.equal(stallsWith(1), true);
});

test('first look after the timeout → not stalled, even without a known queue', () => {
  const { progress } = observe();
  for (let ticks = 0; ticks <= TIMEOUT; ticks += 1) progress.tick();
  progress.noteQueue(() => undefined, 0);
  assert.equal(progress.hasStalled, false);
  progress.noteQueue(() => undefined, 0);
  assert.equal(progress.hasStalled, true);
});

test('send queue whose read began ticks ago → the client has stalled for that much less', () => {
  const { progress } = observe();
  for (let ticks = 0; ticks < TIMEOUT; ticks += 1) progress.tick();
  for (let looks = 0; looks < 2; looks += 1) progress.noteQueue(() => 5, 2);
  assert.deepEqual([progress.confirmedStalledTicks, progress.hasStalled], [TIMEOUT - 2, false]);
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
