import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { GatheredResponse } from './gathered-response.ts';

interface Waiting {
  readonly response: ServerResponse;
  readonly go: () => void;
}

const waiting = new WeakMap<Duplex, Waiting[]>();

/**
 * Calls `go` once the requests that came before on the same connection are answered: RFC 9112 §9.3.2 lets a server
 * carry out pipelined requests side by side only when all of them are safe, and Node does so with any. It is never
 * called when the answer to one of them ended the connection (§9.6).
 */
export function afterEarlier(socket: Duplex, response: ServerResponse, go: () => void): void {
  if (isOver(socket)) return;
  // Node lends the socket to one response after the other.
  if (response.socket !== null) {
    go();
    return;
  }
  const queue = waiting.get(socket);
  if (queue !== undefined) queue.push({ response, go });
  else {
    waiting.set(socket, [{ response, go }]);
    watch(socket);
  }
}

function watch(socket: Duplex): void {
  responseOn(socket)?.once('close', () => {
    const queue = waiting.get(socket) ?? [];
    if (!isOver(socket) && queue[0]?.response.socket) queue.shift()?.go();
    if (!isOver(socket) && queue.length > 0) watch(socket);
    else waiting.delete(socket);
  });
}

function isOver(socket: Duplex): boolean {
  return socket.writableEnded || socket.destroyed;
}

/** Calls `go` once every request that arrived whole on a connection, or has its answer, is done with, or the connection is gone. */
export function whenAnswered(socket: Duplex, go: () => void): void {
  const response = responseOn(socket);
  if ((response?.req.complete || response?.isAnswered) && !socket.destroyed)
    response.once('close', () => whenAnswered(socket, go));
  else go();
}

/** The response that a socket is lent to. */
export function responseOn(socket: Duplex): GatheredResponse<IncomingMessage> | undefined {
  const response: unknown = Reflect.get(socket, '_httpMessage');
  return response instanceof GatheredResponse ? response : undefined;
}
