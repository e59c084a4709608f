import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { codeOf } from '../../../src/api-errors.ts';

/**
 * Below what systems give to whoever asks for any port, on Linux from 32,768 on: other tests ask for many, and would get
 * one that is free only for a moment.
 */
const CHOSEN = [10_000, 32_768] as const;

/** Has a server listen on any free port of this machine alone; resolves to the port. */
export async function listenOnFreePort(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  return address.port;
}

/** A port of loopback that nobody listens on, for programs that cannot choose one and tell it, or stop and come back. */
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
