import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { codeOf } from '../../../src/api-errors.ts';

/**
 * The range of ports to choose from. It ends below the ephemeral ports (on Linux 32,768 and up): other tests use many
 * of those, so a free ephemeral port may soon be in use.
 */
const CHOSEN = [10_000, 32_768] as const;

/** Listens on a random free port of loopback. Resolves to the port. */
export async function listenOnFreePort(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  return address.port;
}

/** Finds a free loopback port, for a program that cannot choose a port itself, or that restarts on the same port. */
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
