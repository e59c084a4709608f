import type { Duplex } from 'node:stream';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyRequest,
  type HookHandlerDoneFunction,
  LogController,
} from 'fastify';
import type { TSchema } from 'typebox';
import { createAudit } from '../audit.ts';
import { codeOf, type ErrorCode, statusOf } from '../errors.ts';
import type { AnsweredRequest } from '../log.ts';
import type { Store } from '../store.ts';
import { type Admission, createAdmission } from './admission.ts';
import { addApiReference } from './api-reference.ts';
import { type Authentication, createAuthentication, type FindGrant } from './authentication.ts';
import { createPlant, createPlantOperation } from './create-plant.ts';
import { allowOrigins } from './cross-origin.ts';
import { deletePlant, deletePlantOperation } from './delete-plant.ts';
import { parseJsonBody } from './json.ts';
import { listPlants, listPlantsOperation } from './list-plants.ts';
import { createListener, type Limits } from './listener.ts';
import { originForm, refuseContent, refuseMalformed } from './message-rules.ts';
import type { Metrics } from './metrics.ts';
import { http } from './node-http.ts';
import { renderOpenApi } from './openapi.ts';
import { asJson, type HandlerOf, type Operation } from './operation.ts';
import { answerOtherMethods, collectMethods } from './other-methods.ts';
import { afterEarlier, whenAnswered } from './pipelining.ts';
import { createRefusedTokens, limitRequests } from './rates.ts';
import { logFailure, noSuchRoute, refuseOnSocket, sendRefusal, toRefusal } from './refusals.ts';
import { compileRequestCheck, withoutCompilers } from './request-check.ts';
import { createRequestIds } from './request-ids.ts';
import type { Tls } from './tls.ts';
import { createPageTurns, createTurns } from './turns.ts';

interface AppOptions {
  readonly store: Store;
  /** Finds what a token of another issuer grants; undefined when only tokens of ours count. */
  readonly findForeignGrant: FindGrant | undefined;
  readonly log: FastifyBaseLogger;
  /** Called when a request has its answer. */
  readonly onAnswered: (request: AnsweredRequest) => void;
  readonly now: () => number;
  /** A prefix of every path, such as `/v1`; empty for none. */
  readonly basePath: string;
  readonly limits: Limits;
  /** Addresses and networks of the proxies whose `X-Forwarded-For` says who the client is. */
  readonly trustedProxies: readonly string[];
  /** Origins whose pages may call the service; `*` for any. */
  readonly origins: readonly string[];
  /** Undefined for HTTP in the clear. */
  readonly tls: Tls | undefined;
  /** Whether clients are told to come back by another connection, since this process is about to end. */
  readonly isStopping: () => boolean;
  readonly metrics: Metrics;
  /** Adds tracing to the application; undefined while it is off. */
  readonly traceRequests: ((app: FastifyInstance) => void) | undefined;
}

/** All operations of the service; the OpenAPI document lists these. */
export const operations = [createPlantOperation, listPlantsOperation, deletePlantOperation] as const;

/** The service as an HTTP application, not yet listening. */
export function createApp(options: AppOptions): FastifyInstance {
  const { store, findForeignGrant, log, now, basePath, limits, metrics } = options;
  const brokenOff = new WeakSet<FastifyRequest>();
  const app = createFastify(options, brokenOff);
  meetExpectations(app);
  takeBodies(app);
  addHooks(app, options, brokenOff);
  allowOrigins(app, options.origins);
  answerErrors(app, options);
  // Apart, so that lists go on while a lock or a slow disk holds up what writes.
  const turns = createTurns();
  const admissions = {
    reads: createAdmission(limits.inFlight, turns),
    writes: createAdmission(limits.inFlight, turns),
  };
  const authentication = createAuthentication({
    store: {
      write: store.write,
      findToken: (digest) => admissions.reads.run(() => store.findToken(digest)),
    },
    findForeignGrant,
    now,
    onLookUp: metrics.tokenLookedUp,
    audit: createAudit(log),
    refusedTokens: createRefusedTokens(limits.refusedTokens, now),
    onUseNotRecorded: (error) => log.warn({ err: error }, 'the last use of a token was not recorded'),
  });
  app.register(async (scope) => addRoutes(scope, authentication, admissions, options), { prefix: basePath });
  return app;
}

function createFastify(options: AppOptions, brokenOff: WeakSet<FastifyRequest>): FastifyInstance {
  const { log, limits, tls, trustedProxies, metrics } = options;
  const nextRequestId = createRequestIds();
  const logRefusal = (requestId: string, code: ErrorCode): void => {
    log.info({ requestId, operation: 'none', status: statusOf(code) }, 'refused');
    metrics.refused(statusOf(code));
  };
  const refuse = (error: unknown, socket: Duplex): void =>
    whenAnswered(socket, () => {
      const requestId = nextRequestId();
      const code = refuseOnSocket(error, socket, requestId);
      if (code !== undefined) logRefusal(requestId, code);
    });
  return Fastify({
    schemaController: withoutCompilers,
    loggerInstance: log.child({}, { level: atLeastWarn(log.level) }),
    logController: createLogController(options, brokenOff),
    // A child for each request would cost more than its one line; that line names the request itself.
    childLoggerFactory: (logger) => logger,
    genReqId: nextRequestId,
    trustProxy: trustedProxies.length > 0 && [...trustedProxies],
    bodyLimit: limits.body,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    routerOptions: { maxParamLength: limits.headers },
    rewriteUrl: originForm,
    serverFactory: (handler) => createListener(handler, { limits, tls, refuse }),
    clientErrorHandler: () => undefined,
    frameworkErrors: (error, request, reply) => {
      const refusal = toRefusal(error);
      logRefusal(request.id, refusal.code);
      sendRefusal(reply.header('x-request-id', request.id), refusal);
    },
  });
}

// Below that, the framework says nothing but where it listens, as `serving` does.
function atLeastWarn(level: string): string {
  return ['error', 'fatal', 'silent'].includes(level) ? level : 'warn';
}

/** Logs nothing but what breaks an answer off behind its headers, where no refusal can be sent any more. */
function createLogController(
  { log, metrics }: AppOptions,
  brokenOff: WeakSet<FastifyRequest>,
): LogController {
  const controller = new LogController({ disableRequestLogging: true });
  controller.streamError = (error, request, reply) => {
    if (codeOf(error) === 'ERR_STREAM_PREMATURE_CLOSE') return;
    brokenOff.add(request);
    logFailure(log, request, error);
    metrics.answered(operationOf(request), 500, reply.elapsedTime / 1_000);
  };
  return controller;
}

/** RFC 9110 §10.1.1. */
function meetExpectations(app: FastifyInstance): void {
  app.addHook('preParsing', (request, reply, _payload, done) => {
    // That of an HTTP/1.0 client is ignored.
    if (request.headers.expect !== undefined && request.raw.httpVersionMinor > 0) reply.raw.writeContinue();
    done();
  });
}

function takeBodies(app: FastifyInstance): void {
  // A body is read for POST alone; for all others nothing may depend on what is in it.
  for (const method of http.METHODS)
    app.addHttpMethod(method, { hasBody: method === 'POST', overrideExisting: true });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => {
    done(null, body);
  });
  app.setValidatorCompiler(({ schema, httpPart }) => compileRequestCheck(schema as TSchema, httpPart));
}

// Not in the content type parser, whose errors close the connection.
function parseBody(request: FastifyRequest, _reply: unknown, done: HookHandlerDoneFunction): void {
  if (Buffer.isBuffer(request.body)) request.body = parseJsonBody(request.body);
  done();
}

function addHooks(app: FastifyInstance, options: AppOptions, brokenOff: WeakSet<FastifyRequest>): void {
  const { log, onAnswered, basePath, limits, isStopping, metrics, traceRequests } = options;
  app.decorateRequest('caller', undefined);
  app.decorateRequest('traceId', undefined);
  traceRequests?.(app);
  app.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id);
    refuseMalformed(request, limits.uri);
    if (request.is404) throw noSuchRoute(basePath);
    afterEarlier(request.raw.socket, reply.raw, done);
  });
  const wentAway = (request: FastifyRequest): void => {
    const { id: requestId, traceId, caller } = request;
    const operation = operationOf(request);
    log.info({ requestId, traceId, operation, owner: caller?.owner }, 'client went away');
    metrics.aborted(operation);
  };
  app.addHook('onSend', (request, reply, payload, done) => {
    // When the request was read to its end, nobody was told: there is no `onRequestAbort` any more.
    if (reply.raw.destroyed && !request.raw.aborted) wentAway(request);
    if (isStopping()) reply.header('connection', 'close');
    done(null, payload);
  });
  app.addHook('onRequestAbort', (request, done) => {
    if (!brokenOff.has(request)) wentAway(request);
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    const operation = operationOf(request);
    const { statusCode: status, elapsedTime } = reply;
    const ms = Math.round(elapsedTime * 100) / 100;
    const { id: requestId, traceId, caller } = request;
    onAnswered({ requestId, traceId, operation, status, ms, owner: caller?.owner });
    metrics.answered(operation, status, elapsedTime / 1_000);
    done();
  });
}

function operationOf({ routeOptions }: FastifyRequest): string {
  return routeOptions.config?.operationId ?? 'none';
}

/**
 * Errors of ours for which the line of the answer is enough: in an overload there is no time for another; why the provider
 * is away was logged when it was asked, and anybody can show a token whose key nobody knows.
 */
const unlogged: readonly ErrorCode[] = [50301, 50302];

function answerErrors(app: FastifyInstance, { log }: AppOptions): void {
  app.setErrorHandler((error, request, reply) => {
    const refusal = toRefusal(error);
    if (refusal.code >= 50000 && !unlogged.includes(refusal.code)) logFailure(log, request, error);
    sendRefusal(reply, refusal);
  });
}

async function addRoutes(
  scope: FastifyInstance,
  authentication: Authentication,
  { reads, writes }: Readonly<Record<'reads' | 'writes', Admission>>,
  options: AppOptions,
): Promise<void> {
  const { store, now, basePath, limits, metrics } = options;
  const document = renderOpenApi(operations, basePath);
  const methods = collectMethods(scope);
  const rates = limits.tokenRequests === 0 ? [] : [limitRequests(limits.tokenRequests, now)];

  function serve<O extends Operation>(operation: O, handler: HandlerOf<O>): void {
    const { operationId, method, url, schema, scope: needed } = operation;
    const admission = needed === 'plants:read' ? reads : writes;
    scope.route({
      method: method === 'GET' ? ['GET', 'HEAD'] : method,
      url,
      schema,
      config: { operationId },
      onRequest: [
        admission.refuseWhenFull,
        authentication.require(needed),
        ...rates,
        refuseContent(limits.body, 'body' in schema),
      ],
      preValidation: parseBody,
      handler: (request, reply) => admission.run(() => (handler as HandlerOf<Operation>)(request, reply)),
    });
  }

  serve(createPlantOperation, createPlant(store));
  const listPath = `${basePath}${listPlantsOperation.url}`;
  serve(listPlantsOperation, listPlants(store, listPath, metrics.listed, createPageTurns()));
  serve(deletePlantOperation, deletePlant(store));
  scope.route({
    method: ['GET', 'HEAD'],
    url: '/openapi.json',
    config: { operationId: 'openapi' },
    handler: async (_request, reply) => asJson(reply, document),
  });
  await scope.register(addApiReference);
  answerOtherMethods(scope, methods);
}
