import type { FastifyBaseLogger, FastifyReply, FastifyRequest } from 'fastify';
import { ApiError, codeOf, statusOf } from '../api-errors.ts';
import { StoreOverloaded, StoreUnavailable } from '../store/store.ts';
import { http } from './node-http.ts';
import { asJson, ClientGone } from './operation.ts';
import { packetOf, RequestTimeout, TargetTooLong } from './receive-errors.ts';

/** RFC 9112 §3, where the method is any token (RFC 9110 §9.1). */
const REQUEST_LINE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+ [^ ]+ HTTP\/1\.[01]$/;

/** The headers of a refusal that may be over in a second. */
export const RETRY_SOON = { 'retry-after': '1' };

/** The refusal that stands for whatever a request ran into. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof StoreUnavailable) {
    return new ApiError(
      50300,
      'the store is unavailable; if this was a write, its outcome is unknown',
      RETRY_SOON,
    );
  }
  if (error instanceof ClientGone)
    return new ApiError(50301, 'the client closed its side; such a list is not read for it', {
      connection: 'close',
    });
  if (error instanceof StoreOverloaded)
    return new ApiError(50301, 'too many writes wait already', RETRY_SOON);
  return (
    fromParser(error) ??
    fromRouter(error) ??
    new ApiError(50000, 'something went wrong here; the request id names it in our log')
  );
}

function fromRouter(error: unknown): ApiError | undefined {
  switch (codeOf(error)) {
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new ApiError(41400, 'the path is too long');
    case 'FST_ERR_BAD_URL':
      return new ApiError(40004, 'the path is not valid percent-encoding');
    default:
      return undefined;
  }
}

function fromParser(error: unknown): ApiError | undefined {
  if (error instanceof TargetTooLong) return new ApiError(41400, error.message);
  if (error instanceof RequestTimeout) return new ApiError(40800, error.message);
  const code = codeOf(error);
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return new ApiError(
        43100,
        'the request line and headers are too large together, or the headers too many',
      );
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return new ApiError(41300, 'the chunk extensions are too large');
    case 'HPE_INVALID_METHOD':
      if (REQUEST_LINE.test(lineOf(error))) return new ApiError(50100, 'the method is not implemented');
  }
  return code.startsWith('HPE_')
    ? new ApiError(40004, 'the request is not well-formed HTTP/1.1 (RFC 9112)')
    : undefined;
}

/** The request line that Node's parser failed in; it gets a whole one at a time. */
function lineOf(error: unknown): string {
  return packetOf(error).toString('latin1').split('\r\n', 1)[0] ?? '';
}

/** Logs what a request ran into, under the id that its answer has. */
export function logFailure(
  log: FastifyBaseLogger,
  { id, traceId }: Pick<FastifyRequest, 'id' | 'traceId'>,
  error: unknown,
): void {
  log.error({ requestId: id, traceId, err: error }, 'failed');
}

/** Does not repeat the path, which may be anything, even a token in the wrong place. */
export function noSuchRoute(basePath: string): ApiError {
  return new ApiError(40401, `there is nothing at this path; see ${basePath}/docs`);
}

/** The one body of all errors. */
function renderErrorBody({ code, message }: Pick<ApiError, 'code' | 'message'>): string {
  return JSON.stringify({ error: code, message });
}

/** Sends the error response. It closes the connection when the request was not received to its end (RFC 9112 §9.6). */
export function sendApiError(reply: FastifyReply, apiError: ApiError): void {
  reply.code(statusOf(apiError.code)).headers(apiError.headers);
  // Where a malformed request ends, the next one may begin in one place for us and in another for a proxy.
  const closes = apiError.headers.connection === 'close';
  if (closes || apiError.code === 40004 || !reply.request.raw.complete) closeBehind(reply);
  reply.send(asJson(reply, renderErrorBody(apiError)));
}

/** Has the connection closed behind a response. */
export function closeBehind(reply: FastifyReply): void {
  reply.header('connection', 'close').removeHeader('keep-alive');
}

/** The bytes of an error response that closes the connection, for an error that no request object exists for. */
export function renderRawError(apiError: ApiError, headers: Readonly<Record<string, string>>): string {
  const body = renderErrorBody(apiError);
  const status = statusOf(apiError.code);
  const fields = {
    ...apiError.headers,
    ...headers,
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(body)),
    date: new Date().toUTCString(),
    connection: 'close',
  };
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n${body}`;
}
