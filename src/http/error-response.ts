import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError, statusOf } from '../api-errors.ts';
import type { EventLog } from '../observability/log-events.ts';
import { NothingStored, StoreDamaged, StoreOverloaded, StoreUnavailable } from '../store/store.ts';
import { codeOf } from '../thrown-errors.ts';
import { headerCase } from './header-names.ts';
import { asJson, statusLineOf } from './response-head.ts';

/** Headers for error responses: the client may retry the request after a second. */
export const RETRY_SOON = { 'retry-after': '1' };

/** Errors of a connection: no room for it or its input, or a timeout. They are shared, since a stack costs microseconds. */
export const TOO_MANY_CONNECTIONS = new ApiError(
  50301,
  'too many connections are open; retry later',
  RETRY_SOON,
);
export const TOO_MUCH_INPUT = new ApiError(
  50301,
  'too many pipelined or incomplete requests are waiting; retry later',
  RETRY_SOON,
);
export const TOO_SLOW = new ApiError(40800, 'the request took too long to arrive');

/** Error for the method CONNECT. */
export const CONNECT_UNSUPPORTED = new ApiError(
  40401,
  'CONNECT is not supported: this service is not a proxy',
);

/** Error: the client closed its connection before the response was complete. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';

  constructor(options?: ErrorOptions) {
    super('the client is gone', options);
  }
}

/** Converts any thrown error to the ApiError that the client gets. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof NothingStored)
    return new ApiError(50300, 'the store is unavailable, and nothing was changed; retry later', RETRY_SOON);
  if (error instanceof StoreDamaged)
    return new ApiError(
      50300,
      'stored data is damaged; the operator of the service must repair it before a retry can succeed. If this was a write, its outcome is unknown',
      RETRY_SOON,
    );
  if (error instanceof StoreUnavailable) {
    return new ApiError(
      50300,
      'the store is unavailable; retry later. If this was a write, its outcome is unknown',
      RETRY_SOON,
    );
  }
  if (error instanceof ClientGone)
    return new ApiError(
      50301,
      'the client closed its sending side of the connection, so the list was not read further; keep the connection open',
      { ...RETRY_SOON, connection: 'close' },
    );
  if (error instanceof StoreOverloaded)
    return new ApiError(50301, 'too many writes are queued; retry later', RETRY_SOON);
  // The router of Fastify rejects such URLs before any hook.
  if (codeOf(error) === 'FST_ERR_BAD_URL')
    return new ApiError(40004, 'the percent-encoding of the path, or the host of the URL, is invalid');
  return new ApiError(50000, 'internal error; the log of the service has details under the request id');
}

/** Logs an error with the request id that the response carries. */
export function logFailure(
  log: EventLog,
  { id, traceId }: Pick<FastifyRequest, 'id' | 'traceId'>,
  error: unknown,
): void {
  log.event('failed', { requestId: id, traceId, err: error });
}

/**
 * Creates the error for an unknown path. Its message omits the path, which may contain a token by mistake.
 */
export function noSuchRoute(basePath: string): ApiError {
  return new ApiError(
    40401,
    `no such route; paths are case-sensitive, and none ends with a slash; see ${basePath}/docs`,
  );
}

/** Renders the JSON body of an error response. */
function renderErrorBody({ code, message }: Pick<ApiError, 'code' | 'message'>): string {
  return JSON.stringify({ error: code, message });
}

/**
 * Sends an error response. Closes the connection if the request was not received completely (RFC 9112 §9.6).
 */
export function sendApiError(reply: FastifyReply, apiError: ApiError): void {
  reply.request.apiError = apiError;
  reply.code(statusOf(apiError.code)).headers(apiError.headers);
  // Malformed HTTP (40004) closes the connection: a proxy and this service may disagree where the next
  // request begins.
  const closes = apiError.headers.connection === 'close';
  if (closes || apiError.code === 40004 || !reply.request.raw.complete) reply.header('connection', 'close');
  reply.send(asJson(reply, renderErrorBody(apiError)));
}

/** A response as HTTP text. The head ends with its empty line. */
export interface RawResponse {
  readonly head: string;
  readonly body: string;
}

/**
 * Renders an error response with `Connection: close`, for an error that belongs to no request.
 */
export function renderRawError(apiError: ApiError, headers: Readonly<Record<string, string>>): RawResponse {
  const body = renderErrorBody(apiError);
  const fields = {
    ...apiError.headers,
    ...headers,
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(body)),
    date: new Date().toUTCString(),
    connection: 'close',
  };
  const lines = Object.entries(fields).map(([name, value]) => `${headerCase(name)}: ${value}\r\n`);
  return { head: `${statusLineOf(statusOf(apiError.code))}${lines.join('')}\r\n`, body };
}
