import Fastify, { type FastifyInstance, type FastifyRequest, LogController } from 'fastify';
import { type ErrorCode, statusOf } from '../api-errors.ts';
import { createAudit } from '../observability/audit-log.ts';
import type { AnsweredRequest } from '../observability/log.ts';
import type { EventLog } from '../observability/log-events.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { Tracing } from '../observability/tracing.ts';
import type { TSchema } from '../schema.ts';
import type { Store } from '../store/store.ts';
import type { Scope } from '../token.ts';
import { addApiReference } from './api-reference.ts';
import { type Authentication, createAuthentication, type FindGrant } from './auth/authentication.ts';
import { createRejectedTokens, limitRequests } from './auth/rate-limit.ts';
import { type BatchedResponse, responseOf } from './batched-response.ts';
import { logFailure, noSuchRoute, renderRawError, sendApiError, toApiError } from './error-response.ts';
import { http } from './node-http.ts';
import { renderOpenApi } from './openapi.ts';
import {
  asJson,
  ClientGone,
  type HandlerOf,
  METHODS,
  type Operation,
  type OperationSchema,
  ownerOf,
} from './operation.ts';
import { createBodyMemory } from './overload/body-memory.ts';
import { type Admission, createAdmission, OWNER_SHARE } from './overload/concurrency-limit.ts';
import { createLoopBudget } from './overload/loop-budget.ts';
import { createPlant, createPlantOperation } from './plants/create-plant.ts';
import { deletePlant, deletePlantOperation } from './plants/delete-plant.ts';
import { listPlants, listPlantsOperation } from './plants/list-plants.ts';
import { createPageSlots } from './plants/page-slots.ts';
import type { ConnectionRegistry } from './protocol/connection-registry.ts';
import { addOrigin, anyOrigin } from './protocol/cors.ts';
import { isAboutServer, originForm, rejectMalformed } from './protocol/http-conformance.ts';
import { createListener, type Limits } from './protocol/http-server.ts';
import { answerOtherMethods, collectMethods } from './protocol/method-not-allowed.ts';
import { receiveBody } from './protocol/request-body.ts';
import { createRequestIds } from './protocol/request-id.ts';
import { compileBodyCheck, compileRequestCheck, withoutCompilers } from './protocol/request-validation.ts';
import type { Tls } from './protocol/tls.ts';
import { COMMON_HEADERS, type CommonHeaders, renderCommon } from './response-head.ts';
import { SendBudget } from './send-buffer-limit.ts';
import { createSendPieces } from './streamed-response.ts';

interface AppOptions {
  readonly store: Store;
  /** Verifies tokens of the identity provider. Undefined if no provider is configured. */
  readonly findForeignGrant: FindGrant | undefined;
  readonly log: EventLog;
  /** Called after each response was sent, with the fields of its log line. */
  readonly onAnswered: (request: AnsweredRequest) => void;
  readonly now: () => number;
  /** Returns the milliseconds of a monotonic clock, for rate limits. */
  readonly monotonicNow: () => number;
  /** Prefix of every path, such as `/v1`; empty for no prefix. */
  readonly basePath: string;
  readonly limits: Limits;
  /** Addresses and networks of trusted proxies. Their `X-Forwarded-For` gives the address of the client. */
  readonly trustedProxies: readonly string[];
  /** Origins whose pages may call the service (CORS); `*` for any origin. */
  readonly origins: readonly string[];
  /** Certificate and key for TLS. Undefined means plain HTTP. */
  readonly tls: Tls | undefined;
  /** Returns true during shutdown. Responses then carry `Connection: close`. */
  readonly isStopping: () => boolean;
  readonly metrics: Metrics;
  /** Traces requests. Undefined while tracing is off. */
  readonly tracing: Tracing | undefined;
  readonly connections: ConnectionRegistry;
  /** Seconds (`max-age`) in Strict-Transport-Security; 0 means that the header is not sent. */
  readonly hsts: number;
}

/** Value of `Allow` for `OPTIONS *`: the methods of the server as a whole (RFC 9110 §9.3.7). */
const ALLOWED_SOMEWHERE = [...METHODS, 'OPTIONS'].join(', ');

/** Memory for clients that read the script of the API reference, as a share of that for lists. */
const REFERENCE_SHARE = 1 / 8;

/** All operations of the service, as listed in the OpenAPI document. */
export const operations = [createPlantOperation, listPlantsOperation, deletePlantOperation] as const;

/** Creates the HTTP application of the service. It does not listen yet. */
export function createApp(options: AppOptions): FastifyInstance {
  const { store, findForeignGrant, log, now, basePath, limits, metrics } = options;
  const commonHeaders = renderCommon(
    { ...headersOfAll(options), 'keep-alive': `timeout=${Math.floor(limits.keepAliveMs / 1_000)}` },
    options.isStopping,
  );
  const app = createFastify(options, commonHeaders);
  setUpRequests(app, limits.body);
  addHooks(app, options, commonHeaders);
  answerErrors(app, options);
  // Reads and writes share one loop budget (handler time per event-loop iteration). Their concurrency limits
  // are separate, so lists still work while a lock or a slow disk blocks writes.
  const waitForLoopBudget = createLoopBudget();
  const admissions = {
    reads: createAdmission(limits.inFlight, waitForLoopBudget),
    writes: createAdmission(limits.inFlight, waitForLoopBudget),
  };
  const lookUps = createAdmission(limits.inFlight, waitForLoopBudget);
  const authentication = createAuthentication({
    store: {
      write: store.write,
      findToken: (digest) => lookUps.run(undefined, () => store.findToken(digest)),
    },
    findForeignGrant,
    now,
    onLookUp: metrics.tokenLookedUp,
    audit: createAudit(log),
    rejectedTokens: createRejectedTokens(limits.rejectedTokens, options.monotonicNow),
    onUseNotRecorded: (error) => log.event('the last use of a token was not recorded', { err: error }),
  });
  app.register(async (scope) => addRoutes(scope, authentication, admissions, options), { prefix: basePath });
  return app;
}

function createFastify(options: AppOptions, commonHeaders: CommonHeaders): FastifyInstance {
  const { log, limits, tls, trustedProxies, origins, connections, metrics } = options;
  const nextRequestId = createRequestIds();
  const logRejection = (requestId: string, code: ErrorCode): void => {
    log.event('rejected', { requestId, operation: 'none', status: statusOf(code) });
    metrics.rejected(statusOf(code));
  };
  const renderError = (error: unknown): string => {
    const requestId = nextRequestId();
    const apiError = toApiError(error);
    if (apiError.code === 50000) logFailure(log, { id: requestId, traceId: undefined }, error);
    logRejection(requestId, apiError.code);
    return renderRawError(apiError, {
      'x-request-id': requestId,
      ...headersOfAll(options),
      ...anyOrigin(origins),
    });
  };
  return Fastify({
    schemaController: withoutCompilers,
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: nextRequestId,
    trustProxy: trustedProxies.length > 0 && [...trustedProxies],
    exposeHeadRoutes: false,
    return503OnClosing: false,
    routerOptions: { maxParamLength: limits.headers },
    rewriteUrl: originForm,
    serverFactory: (handler) =>
      createListener(handler, {
        limits,
        tls,
        connections,
        renderError,
        onClosed: (response) => complete(response, options),
        onHandshakeFailed: (err) => {
          log.event('a TLS handshake failed', { err });
          metrics.handshakeFailed();
        },
      }),
    clientErrorHandler: () => undefined,
    frameworkErrors: (error, request, reply) => {
      const apiError = toApiError(error);
      logRejection(request.id, apiError.code);
      responseOf(reply).setCommonHeaders(request.id, commonHeaders);
      addOrigin(origins, request, reply);
      sendApiError(reply, apiError);
    },
  });
}

function setUpRequests(app: FastifyInstance, bodyLimit: number): void {
  // Stops Fastify from reading bodies: the hook `receiveBody` reads them instead, for all methods.
  for (const method of http.METHODS) app.addHttpMethod(method, { hasBody: false, overrideExisting: true });
  app.setValidatorCompiler(({ schema, httpPart }) => compileRequestCheck(schema as TSchema, httpPart));
  app.decorateRequest('caller', undefined);
  app.decorateRequest('traceId', undefined);
  app.decorateRequest('brokenOff', undefined);
  app.addHook('preParsing', receiveBody(bodyLimit, createBodyMemory(bodyLimit)));
}

/** Returns the headers that every response has, also one to an error that belongs to no request. */
function headersOfAll({ hsts }: Pick<AppOptions, 'hsts'>): Readonly<Record<string, string>> {
  return {
    ...COMMON_HEADERS,
    ...(hsts > 0 && { 'strict-transport-security': `max-age=${hsts}` }),
  };
}

function addHooks(app: FastifyInstance, options: AppOptions, commonHeaders: CommonHeaders): void {
  const { basePath, limits, tracing, origins } = options;
  tracing?.traceRequests(app);
  app.addHook('onRequest', (request, reply, done) => {
    const response = responseOf(reply);
    // Stores the request in the response. If a closure captured the request instead, V8 would free it too
    // late (test/system/request-memory.test.ts).
    response.routed = request;
    response.setCommonHeaders(request.id, commonHeaders);
    addOrigin(origins, request, reply);
    if (response.receiveError !== undefined) throw response.receiveError;
    rejectMalformed(request, limits.uri);
    if (request.is404 && !isAboutServer(request.raw)) throw noSuchRoute(basePath);
    done();
  });
  app.setNotFoundHandler((_request, reply) => reply.code(204).header('allow', ALLOWED_SOMEWHERE).send());
}

/** Logs, counts and traces a request once, after its response was sent or its connection was lost. */
function complete(response: BatchedResponse, options: AppOptions): void {
  const { routed: request } = response;
  response.routed = undefined;
  if (request === undefined) return;
  const { log, onAnswered, metrics, tracing } = options;
  const { id: requestId, traceId, caller } = request;
  const operation = operationOf(request);
  const seconds = (performance.now() - response.startedAt) / 1_000;
  const isSent = response.writableFinished;
  const { brokenOff } = request;
  const failure = brokenOff === undefined ? undefined : statusOf(brokenOff.code);
  const status = isSent && !response.isClientGone ? response.statusCode : failure;
  tracing?.endSpan(request, status);
  if (status === undefined) {
    log.event('client went away', { requestId, traceId, operation, owner: caller?.owner });
    metrics.aborted(operation);
    return;
  }
  metrics.answered(operation, status, seconds);
  const ms = Math.round(seconds * 100_000) / 100;
  onAnswered({ requestId, traceId, operation, status, ms, owner: caller?.owner });
}

function operationOf({ routeOptions }: FastifyRequest): string {
  return routeOptions.config?.operationId ?? 'none';
}

/**
 * Codes of server errors that get no error line in the log. 50100: the client sent a method that is not
 * implemented. 50301: the service is overloaded, and log lines would add load. 50302: the key of a token is
 * unknown and cannot be fetched now. Clients could flood the log with such tokens. Instead, the service logs
 * each failed read of the identity provider's keys.
 */
const unlogged: readonly ErrorCode[] = [50100, 50301, 50302];

function answerErrors(app: FastifyInstance, { log }: AppOptions): void {
  app.setErrorHandler((error, request, reply) => {
    const apiError = toApiError(error);
    // The connection is closed, so no response is sent. The function `complete` still logs the request.
    if (error instanceof ClientGone && reply.raw.destroyed) return;
    if (apiError.code >= 50000 && !unlogged.includes(apiError.code)) logFailure(log, request, error);
    sendApiError(reply, apiError);
  });
}

async function addRoutes(
  scope: FastifyInstance,
  authentication: Authentication,
  { reads, writes }: Readonly<Record<'reads' | 'writes', Admission>>,
  options: AppOptions,
): Promise<void> {
  const { store, log, basePath, limits, metrics } = options;
  const document = renderOpenApi(operations, basePath);
  const methods = collectMethods(scope);
  const sendBudget = new SendBudget(limits.unsent, OWNER_SHARE);
  const sendPieces = createSendPieces((request, error) => {
    request.brokenOff = toApiError(error);
    if (request.brokenOff.code >= 50000) logFailure(log, request, error);
  });
  const admissionOf: Readonly<Record<Scope, Admission>> = { 'plants:read': reads, 'plants:write': writes };
  const rates = limits.tokenRequests === 0 ? [] : [limitRequests(limits.tokenRequests, options.monotonicNow)];

  function serve<O extends Operation>(operation: O, handler: HandlerOf<O>): void {
    const { operationId, method, url, scope: needed, success } = operation;
    const admission = admissionOf[needed];
    const { body, ...schema }: OperationSchema = operation.schema;
    const checkBody = body === undefined ? undefined : compileBodyCheck(body);
    const authenticate = authentication.require(needed);

    scope.route({
      method: method === 'GET' ? ['GET', 'HEAD'] : method,
      url,
      schema,
      config: { operationId, authenticate, readsBody: body !== undefined },
      onRequest: [admission.rejectWhenFull, authenticate, ...rates],
      // Parses the body inside `admission.run`, so that the concurrency limit and the loop budget include
      // parsing.
      handler: (request, reply) =>
        admission.run(ownerOf(request), () => {
          if (checkBody !== undefined) request.body = checkBody(request.body);
          reply.code(success.status);
          return (handler as HandlerOf<Operation>)(request, reply);
        }),
    });
  }

  serve(createPlantOperation, createPlant(store));
  const listPath = `${basePath}${listPlantsOperation.url}`;
  serve(
    listPlantsOperation,
    listPlants(store, listPath, metrics.listed, {
      budget: sendBudget,
      sendPieces,
      waitForPageSlot: createPageSlots(),
      recheck: (request) => authentication.recheck(request, listPlantsOperation.scope),
    }),
  );
  serve(deletePlantOperation, deletePlant(store));
  scope.route({
    method: ['GET', 'HEAD'],
    url: '/openapi.json',
    config: { operationId: 'openapi' },
    handler: async (_request, reply) => asJson(reply, document),
  });
  // Its own budget: clients without a token may not use up that of lists.
  await addApiReference(scope, new SendBudget(limits.unsent * REFERENCE_SHARE, 1), sendPieces);
  answerOtherMethods(scope, methods);
}
