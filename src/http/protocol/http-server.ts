import type { IncomingMessage, RequestListener, Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { BatchedResponse } from '../batched-response.ts';
import { TOO_MANY_CONNECTIONS } from '../error-response.ts';
import { http } from '../node-http.ts';
import type { HttpConnectionOptions } from './connection/connection-options.ts';
import { type ConnectionRegistry, TICK_MS } from './connection/connection-registry.ts';
import { Connection } from './connection/http-connection.ts';
import { destroyLater } from './connection/linger.ts';
import type { Tls } from './tls.ts';

/** Limits of a connection, with the names of their settings. Sizes are in bytes, times in milliseconds. */
export interface ConnectionLimits {
  readonly headerLimit: number;
  readonly headerTimeout: number;
  readonly requestTimeout: number;
  readonly keepAliveTimeout: number;
  /** A connection is closed if its client accepts no byte of a response for this time. */
  readonly writeTimeout: number;
}

interface HttpServerOptions
  extends Pick<HttpConnectionOptions, 'waitToParse' | 'waitToReject' | 'reportRejection' | 'onClosed'> {
  readonly limits: ConnectionLimits;
  readonly tls: Tls | undefined;
  readonly connections: ConnectionRegistry;
  /** Called when a TLS handshake failed, before any request. */
  readonly onHandshakeFailed: (error: unknown) => void;
}

/**
 * Max concurrent connections above the connection limit that get an error response. Further connections are
 * closed without a response.
 */
export const MAX_REJECTED = 1_000;

/** Matches a Connection header with the member `close` (RFC 9110 §7.6.1). */
const HAS_CLOSE = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i;

/** Longest delay of a timer of Node, 25 days. Disables Node's timeout of handshakes, which 0 does not. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Creates an HTTP/1.1 server that dispatches the requests of a connection one by one. It does not listen yet.
 */
export function createHttpServer(handler: RequestListener, options: HttpServerOptions): Server {
  const { limits, tls, connections, onHandshakeFailed, ...forConnections } = options;
  const serverOptions = {
    maxHeaderSize: limits.headerLimit,
    // Switches off Node's timeouts. The classes Connection and ConnectionRegistry count all timeouts, in ticks.
    headersTimeout: 0,
    requestTimeout: 0,
    keepAliveTimeout: 0,
    // Switches off Node's check of the Host header, whose error response has no body. `rejectMalformed`
    // checks the header instead.
    requireHostHeader: false,
    // Whatever NODE_OPTIONS says: the framing of messages relies on the strict parser.
    insecureHTTPParser: false,
    optimizeEmptyRequests: true,
    ServerResponse: BatchedResponse,
  };
  const timeouts = timeoutsOf(limits);
  const server =
    tls === undefined
      ? http.createServer(serverOptions)
      : tls.createServer({ ...serverOptions, handshakeTimeout: LONGEST_TIMER_MS });
  const known = new WeakMap<Duplex, Connection>();
  const connectionOptions: HttpConnectionOptions = {
    ...forConnections,
    maxHeaderBytes: limits.headerLimit,
    timeouts,
    handle: handler,
    isTls: tls !== undefined,
    onIdle: () => connections.noteIdle(),
    onInputCounted: (connection, bytes) => connections.countInput(connection, bytes),
  };
  server.on(tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
    // Over TLS only from here on: a client that closes its sending side in the handshake is gone.
    socket.allowHalfOpen = true;
    const connection = new Connection(socket, connectionOptions);
    known.set(socket, connection);
    connections.add(connection);
  });
  limitConnections(server, options, timeouts.headers);
  const take = (request: IncomingMessage, response: BatchedResponse): void => {
    // In HTTP/1.0, Node ignores `close` next to `keep-alive`, but `close` takes precedence (RFC 9112 §9.3).
    if (request.httpVersionMinor === 0 && HAS_CLOSE.test(request.headers.connection ?? ''))
      response.shouldKeepAlive = false;
    known.get(request.socket)?.take(response);
  };
  server.on('request', take);
  // Adds listeners for requests with `Expect`. Without them Node would respond before authentication.
  server.on('checkContinue', take);
  server.on('checkExpectation', take);
  server.on('clientError', (error, socket) => {
    const connection = known.get(socket);
    // Node closes no socket for which this event has a listener, and no response after an invalid TLS record.
    if (connection !== undefined) connection.destroy();
    else {
      onHandshakeFailed(error);
      socket.destroy();
    }
  });
  return server;
}

function timeoutsOf(limits: ConnectionLimits): HttpConnectionOptions['timeouts'] {
  const ticks = (ms: number): number => Math.ceil(ms / TICK_MS);
  return {
    headers: ticks(limits.headerTimeout),
    request: ticks(limits.requestTimeout),
    idle: ticks(limits.keepAliveTimeout),
    write: ticks(limits.writeTimeout),
  };
}

/** Limits open connections. Node's `maxConnections` would close a connection without a response. */
function limitConnections(
  server: Server,
  { tls, connections, reportRejection }: HttpServerOptions,
  handshakeTicks: number,
): void {
  const accept = server.listeners('connection');
  let rejected = 0;
  server.removeAllListeners('connection');
  server.on('connection', (socket: Socket) => {
    // The client's address is undefined if the client has already reset the connection.
    if (socket.remoteAddress === undefined) socket.destroy();
    else if (connections.makeRoom()) {
      if (tls !== undefined) connections.beginHandshake(socket, handshakeTicks);
      for (const listener of accept) listener.call(server, socket);
    } else reject(socket);
  });

  function reject(socket: Socket): void {
    // Sends no error response over TLS. The response would need a handshake, which is the largest part of the
    // cost of a connection.
    if (tls !== undefined || rejected >= MAX_REJECTED) {
      socket.destroy();
      return;
    }
    rejected += 1;
    socket.on('error', () => socket.destroy());
    socket.once('close', () => {
      rejected -= 1;
    });
    destroyLater(socket);
    const { head, body } = reportRejection(TOO_MANY_CONNECTIONS);
    socket.end(head + body);
    socket.resume();
  }
}
