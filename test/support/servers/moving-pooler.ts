import { connect, createServer, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { listenOnFreePort } from './free-port.ts';

/** PostgreSQL's message ReadyForQuery, outside a transaction (PostgreSQL documentation, §54.7). */
const READY = Buffer.from('Z\0\0\0\x05I', 'latin1');

interface MovingPooler {
  readonly port: number;
  /**
   * Gives each client a new server connection, to the port `target`; clients must be idle. A pooler in
   * transaction mode may do this at any time.
   */
  moveTo(target: number): Promise<void>;
}

/**
 * Starts a minimal pooler: clients stay connected while their server connections change. It does not support
 * passwords.
 */
export async function startMovingPooler(
  t: Pick<TestContext, 'after'>,
  firstTarget: number,
): Promise<MovingPooler> {
  let target = firstTarget;
  const clients = new Map<Socket, (target: number) => Promise<void>>();
  const listener = createServer((client) => {
    let startup: Buffer | undefined;
    let server = link(connect(target, '127.0.0.1'));

    function link(next: Socket): Socket {
      next.on('error', () => undefined).on('data', (bytes) => client.write(bytes));
      next.on('close', () => {
        if (next === server) client.destroy();
      });
      return next;
    }

    client
      .on('error', () => undefined)
      .on('close', () => {
        clients.delete(client);
        server.destroy();
      });
    client.on('data', (bytes) => {
      startup ??= Buffer.from(bytes);
      server.write(bytes);
    });
    clients.set(client, async (port) => {
      const next = await login(port, startup);
      const before = server;
      server = link(next);
      before.destroy();
    });
  });
  const port = await listenOnFreePort(listener);
  t.after(() => {
    listener.close();
    for (const client of clients.keys()) client.destroy();
  });
  return {
    port,
    moveTo: async (next) => {
      target = next;
      await Promise.all([...clients.values()].map((move) => move(next)));
    },
  };
}

/**
 * Opens a connection to PostgreSQL with the start-up message of a client. Resolves when the server is ready
 * for queries.
 */
async function login(port: number, startup: Buffer | undefined): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  if (startup !== undefined) socket.write(startup);
  let received = Buffer.alloc(0);
  await new Promise<void>((resolve, reject) => {
    function read(bytes: Buffer): void {
      received = Buffer.concat([received, bytes]);
      if (!received.subarray(-READY.length).equals(READY)) return;
      socket.off('data', read);
      resolve();
    }
    socket.on('data', read).once('error', reject);
  });
  return socket;
}
