import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { readSendQueues } from '../../../src/http/protocol/connection/kernel-send-queue.ts';
import { needs } from '../../support/needs.ts';
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
