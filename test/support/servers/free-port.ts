import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { codeOf } from '../../../src/thrown-errors.ts';

/**
 * Range from which a free port is chosen. It excludes the ephemeral ports (on Linux from 32,768 up).
 * Connections of other tests use many ephemeral ports, so a free ephemeral port may soon be in use. It also
 * excludes 10,080, which `fetch` blocks (https://fetch.spec.whatwg.org/#port-blocking).
 */
const CHOSEN = [10_081, 32_768] as const;

/** Makes a server listen on a free port of loopback. Resolves to the port. */
export async function listenOnFreePort(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  return address.port;
}

/** Finds a free loopback port for a program that cannot choose a port, or that restarts on the same port. */
export async function freePort(): Promise<number> {
  const port = randomInt(...CHOSEN);
  const server = createServer();
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
  } catch (error: unknown) {
    if (codeOf(error) === 'EADDRINUSE') return freePort();
    throw error;
  }
  server.close();
  await once(server, 'close');
  return port;
}
