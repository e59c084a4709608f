import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { Refusal } from '../errors.ts';
import { GatheredResponse } from './gathered-response.ts';
import { http } from './node-http.ts';
import { RETRY_SOON } from './refusals.ts';
import type { Tls } from './tls.ts';

/** What a client may take of the service. Sizes are in bytes, times in milliseconds. */
export interface Limits {
  readonly headers: number;
  /** In characters, which are bytes here. */
  readonly uri: number;
  readonly body: number;
  readonly connections: number;
  /** Requests that ask something of the store at once. */
  readonly inFlight: number;
  /** Requests a minute for each token, and refused tokens a minute for each address; 0 for any number. */
  readonly tokenRequests: number;
  readonly refusedTokens: number;
  readonly headersMs: number;
  readonly requestMs: number;
  readonly keepAliveMs: number;
}

interface ListenerOptions {
  readonly limits: Limits;
  readonly tls: Tls | undefined;
  /** Answers on the bare socket, and closes the connection. */
  readonly refuse: (error: unknown, socket: Duplex) => void;
}

const TIMEOUT_CHECK_MS = 1_000;

/** So many connections beyond the limit are told why they are refused; more are dropped. */
const REFUSED_ALOUD = 1_000;

/** A server for HTTP/1.1, not yet listening, whose every refusal is ours to word. */
export function createListener(handler: RequestListener, options: ListenerOptions): Server {
  const { limits, tls, refuse } = options;
  const serverOptions = {
    maxHeaderSize: limits.headers,
    headersTimeout: Math.min(limits.headersMs, limits.requestMs),
    requestTimeout: limits.requestMs,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: TIMEOUT_CHECK_MS,
    // Node would answer without a body; `refuseMalformed` looks instead.
    requireHostHeader: false,
    ServerResponse: GatheredResponse,
  };
  const server =
    tls === undefined
      ? http.createServer(serverOptions, handler)
      : tls.createServer({ ...serverOptions, handshakeTimeout: limits.headersMs }, handler);
  boundConnections(server, options);
  server.on('clientError', refuse);
  // Node would answer `Expect` by itself, before anybody knows whether the request is welcome.
  const take = (request: IncomingMessage, response: ServerResponse): boolean =>
    server.emit('request', request, response);
  server.on('checkContinue', take);
  server.on('checkExpectation', take);
  // Node would drop the connection without a word. It leaves the errors of the socket to us, and one nobody minds ends the process.
  server.on('connect', (_request, socket) => {
    socket.on('error', () => socket.destroy());
    refuse(new Refusal(40401, 'this is not a proxy'), socket);
  });
  return server;
}

/** Not by `maxConnections`, which drops a connection without a word. */
function boundConnections(server: Server, { limits, tls, refuse }: ListenerOptions): void {
  const accept = server.listeners('connection');
  server.removeAllListeners('connection');
  server.on('connection', (socket: Socket) => {
    server.getConnections((_error, open) => take(socket, open));
  });

  function take(socket: Socket, open: number): void {
    if (open <= limits.connections) for (const listener of accept) listener.call(server, socket);
    // Under TLS there is nothing to say before the handshake, which is the most of what a connection costs.
    else if (open > limits.connections + REFUSED_ALOUD || tls !== undefined) socket.destroy();
    else {
      socket.on('error', () => socket.destroy());
      refuse(new Refusal(50301, 'too many connections are open already', RETRY_SOON), socket);
    }
  }
}
