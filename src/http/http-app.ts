import { randomBytes } from 'node:crypto';
import Fastify, { type FastifyInstance, LogController } from 'fastify';
import { ApiError, type ErrorCode } from '../api-errors.ts';
import type { EventLog } from '../observability/log-events.ts';
import type { Tracing } from '../observability/tracing.ts';
import type { TSchema } from '../schema.ts';
import { createTrust } from './auth/client-address.ts';
import { type BatchedResponse, responseOf } from './batched-response.ts';
import {
  ClientGone,
  logFailure,
  type RawResponse,
  renderRawError,
  sendApiError,
  toApiError,
} from './error-response.ts';
import { http } from './node-http.ts';
import { createLoopBudget } from './overload/loop-budget.ts';
import type { ConnectionRegistry } from './protocol/connection/connection-registry.ts';
import { addOrigin, commonOrigin } from './protocol/cors.ts';
import { isAboutServer, originForm, rejectMalformed } from './protocol/http-conformance.ts';
import { type ConnectionLimits, createHttpServer } from './protocol/http-server.ts';
import { receiveBody } from './protocol/request-body.ts';
import { compileRequestCheck, withoutCompilers } from './protocol/request-validation.ts';
import type { Tls } from './protocol/tls.ts';
import { renderCommon } from './response-head.ts';

/**
 * Time in one event-loop iteration, in milliseconds, after which further requests stay unparsed until a later one.
 * libuv reads up to 49,152 sockets in an iteration, and their requests would be in memory together.
 */
export const PARSER_BUDGET_MS = 20;

/** Limits of connections and requests, with the names of their settings. */
export interface HttpLimits extends ConnectionLimits {
  /** Max characters of a URI. Each character is one byte. */
  readonly uriLimit: number;
  /** Max bytes of a body. */
  readonly bodyLimit: number;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Trace id of the request. Undefined while tracing is off. */
    traceId: string | undefined;
    /** Error of the error response; otherwise undefined. */
    apiError: ApiError | undefined;
  }
}

export interface HttpAppOptions {
  readonly limits: HttpLimits;
  readonly connections: ConnectionRegistry;
  /** Certificate and key for TLS. Undefined means plain HTTP. */
  readonly tls?: Tls | undefined;
  readonly log: EventLog;
  /** Traces requests. Undefined while tracing is off. */
  readonly tracing?: Tracing | undefined;
  /** Addresses and networks of trusted proxies. Their `X-Forwarded-For` gives the address of the client. */
  readonly trustedProxies?: readonly string[];
  /** Origins whose pages may call the service (CORS); `*` for any origin. */
  readonly origins?: readonly string[];
  /** Headers of every response, also of one to an error that belongs to no request. */
  readonly headers: Readonly<Record<string, string>>;
  /** Returns true during shutdown. Responses then carry `Connection: close`. */
  readonly isStopping?: () => boolean;
  /** Counts the bytes of bodies by owner, until their responses close. Throws an ApiError above a limit. */
  readonly countBody: (owner: string, bytes: number) => void;
  /** Value of `Allow` for `OPTIONS *`: the methods of the server as a whole (RFC 9110 §9.3.7). */
  readonly allowed: string;
  readonly noSuchRoute: () => ApiError;
  /** Called with each error that is found before a request is routed. */
  readonly onRejected?: (requestId: string, code: ErrorCode) => void;
  /** Called once for each request, after its response was sent or its connection was lost. */
  readonly onClosed?: (response: BatchedResponse) => void;
  readonly onHandshakeFailed?: (error: unknown) => void;
}

/**
 * Creates an application without routes, with what every listener has: the limits of connections and bodies, the
 * checks of each request, the common headers, and one shape for all errors.
 */
export function createHttpApp(options: HttpAppOptions): FastifyInstance {
  const { limits, connections, tls, log, headers, trustedProxies = [], origins = [] } = options;
  const { onRejected, onClosed = () => undefined, onHandshakeFailed = () => undefined } = options;
  const nextRequestId = createRequestIds();
  const commonHeaders = renderCommon(
    { ...headers, 'keep-alive': `timeout=${Math.floor(limits.keepAliveTimeout / 1_000)}` },
    options.isStopping,
  );
  const reportRejection = (error: unknown): RawResponse => {
    const requestId = nextRequestId();
    const apiError = toApiError(error);
    if (apiError.code === 50000) logFailure(log, { id: requestId, traceId: undefined }, error);
    onRejected?.(requestId, apiError.code);
    return renderRawError(apiError, { 'x-request-id': requestId, ...headers, ...commonOrigin(origins) });
  };
  const app: FastifyInstance = Fastify({
    schemaController: withoutCompilers,
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: nextRequestId,
    trustProxy: trustedProxies.length > 0 && createTrust(trustedProxies),
    exposeHeadRoutes: false,
    return503OnClosing: false,
    routerOptions: { maxParamLength: limits.headerLimit },
    rewriteUrl: originForm,
    serverFactory: (handler) =>
      createHttpServer(handler, {
        limits,
        tls,
        connections,
        waitToParse: createLoopBudget(PARSER_BUDGET_MS),
        waitToReject: createLoopBudget(),
        reportRejection,
        onClosed: (response) => {
          logSendError(log, response);
          onClosed(response);
        },
        onHandshakeFailed,
      }),
    clientErrorHandler: () => undefined,
    frameworkErrors: (error, request, reply) => {
      const apiError = toApiError(error);
      onRejected?.(request.id, apiError.code);
      responseOf(reply).setCommonHeaders(request.id, commonHeaders);
      addOrigin(origins, request, reply);
      sendApiError(reply, apiError);
    },
  });
  // Stops Fastify from reading bodies: the hook `receiveBody` reads them instead, for all methods.
  for (const method of http.METHODS) app.addHttpMethod(method, { hasBody: false, overrideExisting: true });
  app.setValidatorCompiler<TSchema>(({ schema, httpPart }) => compileRequestCheck(schema, httpPart));
  app.decorateRequest('traceId', undefined);
  app.decorateRequest('apiError', undefined);
  app.addHook('preParsing', receiveBody(limits.bodyLimit, options.countBody));
  options.tracing?.traceRequests(app);
  app.addHook('onRequest', (request, reply, done) => {
    const response = responseOf(reply);
    // Stores the request in the response. If a closure captured the request instead, V8 would free it too
    // late (test/system/load/request-memory.test.ts).
    response.fastifyRequest = request;
    response.setCommonHeaders(request.id, commonHeaders);
    addOrigin(origins, request, reply);
    if (response.receiveError !== undefined) throw response.receiveError;
    rejectMalformed(request, limits.uriLimit);
    if (request.is404 && !isAboutServer(request.raw)) throw options.noSuchRoute();
    done();
  });
  app.setNotFoundHandler((_request, reply) => reply.code(204).header('allow', options.allowed).send());
  app.setErrorHandler((error, request, reply) => {
    const apiError = toApiError(error);
    // The connection is closed, so no response is sent. `onClosed` is still called.
    if (error instanceof ClientGone && reply.raw.destroyed) return;
    if (hidesCause(error, apiError)) logFailure(log, request, error);
    sendApiError(reply, apiError);
  });
  return app;
}

/**
 * True if the log needs the cause of a response. An error that was thrown as ApiError says all to the client, who could flood
 * the log with it. So does an overload (50301), to which log lines would add load.
 */
function hidesCause(error: unknown, { code }: ApiError): boolean {
  return !(error instanceof ApiError) && code >= 50000 && code !== 50301;
}

/** Logs a server error for which a response was not sent to its end. The client gets no code of it. */
function logSendError(log: EventLog, { sendError, fastifyRequest: request }: BatchedResponse): void {
  if (sendError === undefined || request === undefined) return;
  if (toApiError(sendError).code >= 50000) logFailure(log, request, sendError);
}

/** Returns a generator of request ids. Each has the random prefix of its generator, and a number. */
export function createRequestIds(): () => string {
  // Not base64url: an id that begins with `-` would be an option of `grep`.
  const prefix = randomBytes(6).toString('hex');
  let count = 0;
  return () => {
    count += 1;
    return `${prefix}-${count.toString(36)}`;
  };
}
