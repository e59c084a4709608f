import type { Socket } from 'node:net';

/** Milliseconds for which the service still reads a connection after its last response. */
export const LINGER_MS = 1_000;

/** Closes a socket after LINGER_MS, unless its client closes it before. */
export function destroyLater(socket: Socket): void {
  const linger = setTimeout(() => socket.destroy(), LINGER_MS).unref();
  socket.once('close', () => clearTimeout(linger));
}
