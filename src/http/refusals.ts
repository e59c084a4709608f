import type { Duplex } from 'node:stream';
import type { FastifyBaseLogger, FastifyReply, FastifyRequest } from 'fastify';
import { codeOf, type ErrorCode, Refusal, statusOf } from '../errors.ts';
import { StoreOverloaded, StoreUnavailable } from '../store.ts';
import { http } from './node-http.ts';
import { asJson } from './operation.ts';
import { responseOn } from './pipelining.ts';

/** What begins with so many characters of a request line has a target that is too long. */
const LONG_LINE = 8 * 1024;
const IN_TARGET = /^(?:\r\n)*[A-Z-]+ [^ \n]+$/;

/** How long a client that was refused on the bare socket may take to close its side. */
const LINGER_MS = 1_000;

/** The headers of a refusal that may be over in a second. */
export const RETRY_SOON = { 'retry-after': '1' };

/** The refusal that stands for whatever a request ran into. */
export function toRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof StoreUnavailable) {
    return new Refusal(
      50300,
      'the store is unavailable; if this was a write, its outcome is unknown',
      RETRY_SOON,
    );
  }
  if (error instanceof StoreOverloaded) return new Refusal(50301, 'too many writes wait already', RETRY_SOON);
  return (
    fromRouter(error) ?? new Refusal(50000, 'something went wrong here; the request id names it in our log')
  );
}

function fromRouter(error: unknown): Refusal | undefined {
  switch (codeOf(error)) {
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new Refusal(41500, 'the Content-Type must be application/json');
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new Refusal(41300, 'the body is too large');
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new Refusal(41400, 'the path is too long');
    case 'FST_ERR_BAD_URL':
      return new Refusal(40004, 'the path is not valid percent-encoding');
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
    case 'ECONNRESET':
      return new Refusal(40004, 'the body does not have the length that Content-Length says');
    default:
      return undefined;
  }
}

function fromParser(error: unknown): Refusal {
  switch (codeOf(error)) {
    case 'HPE_HEADER_OVERFLOW':
      return isInTarget(error)
        ? new Refusal(41400, 'the URI is too long')
        : new Refusal(43100, 'the request line and headers are too large together, or the headers too many');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new Refusal(40800, 'the request took too long to arrive');
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return new Refusal(41300, 'the chunk extensions are too large');
    default:
      return new Refusal(40004, 'the request is not well-formed HTTP/1.1 (RFC 9112)');
  }
}

/**
 * Whether the parser gave up within the request target for sure: the last packet is all there is, and only one that
 * begins with the request line tells. Of any other, that line and headers are too large together is true in any case.
 */
function isInTarget(error: unknown): boolean {
  const packet: unknown = error instanceof Error && 'rawPacket' in error ? error.rawPacket : undefined;
  return Buffer.isBuffer(packet) && IN_TARGET.test(packet.toString('latin1', 0, LONG_LINE));
}

/** Logs what a request ran into, under the id that its answer has. */
export function logFailure(log: FastifyBaseLogger, { id, traceId }: FastifyRequest, error: unknown): void {
  log.error({ requestId: id, traceId, err: error }, 'failed');
}

/** Does not repeat the path, which may be anything, even a token in the wrong place. */
export function noSuchRoute(basePath: string): Refusal {
  return new Refusal(40401, `there is nothing at this path; see ${basePath}/docs`);
}

/** The one body of all errors. */
function renderRefusal({ code, message }: Pick<Refusal, 'code' | 'message'>): string {
  return JSON.stringify({ error: code, message });
}

export function sendRefusal(reply: FastifyReply, refusal: Refusal): void {
  reply.code(statusOf(refusal.code)).headers(refusal.headers).header('cache-control', 'no-store');
  // Where a malformed request ends, the next one may begin in one place for us and in another for a proxy.
  if (refusal.code === 40004) reply.header('connection', 'close');
  reply.send(asJson(reply, renderRefusal(refusal)));
}

/**
 * Answers on the bare socket what Node's parser refused before there was a request, and closes the connection.
 * Returns the code, or undefined when nothing could be said.
 */
export function refuseOnSocket(error: unknown, socket: Duplex, requestId: string): ErrorCode | undefined {
  // Its last answer is on the way out already.
  if (socket.writableEnded) return undefined;
  // A second response in the middle of one that has begun would be taken for its body.
  if (!socket.writable || codeOf(error) === 'ECONNRESET' || responseOn(socket)?.headersSent) {
    socket.destroy();
    return undefined;
  }
  const refusal = error instanceof Refusal ? error : fromParser(error);
  const body = renderRefusal(refusal);
  const head = [
    `HTTP/1.1 ${statusOf(refusal.code)} ${reasonPhrase(refusal.code)}`,
    ...Object.entries(refusal.headers).map(([name, value]) => `${name}: ${value}`),
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(body)}`,
    'cache-control: no-store',
    `x-request-id: ${requestId}`,
    `date: ${new Date().toUTCString()}`,
    'connection: close',
  ];
  closeGently(socket, `${head.join('\r\n')}\r\n\r\n${body}`);
  return refusal.code;
}

/** RFC 9112 §9.6: what the client still sends is read for a moment, lest a reset of the connection overtakes the answer. */
function closeGently(socket: Duplex, message: string): void {
  const cut = setTimeout(() => socket.destroy(), LINGER_MS).unref();
  socket.once('close', () => clearTimeout(cut));
  socket.end(message);
  socket.resume();
}

function reasonPhrase(code: ErrorCode): string {
  return http.STATUS_CODES[statusOf(code)] ?? '';
}
