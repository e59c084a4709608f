import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ApiError, statusOf } from '../api-errors.ts';
import type { Audit } from '../observability/audit-log.ts';
import type { AnsweredRequest } from '../observability/log.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { Store } from '../store/store.ts';
import type { Scope } from '../token.ts';
import { addApiReference } from './api-reference.ts';
import { type Authentication, createAuthentication, type VerifyJwt } from './auth/authentication.ts';
import { watchExpiringTokens } from './auth/expiring-tokens.ts';
import { createLastUse } from './auth/last-use.ts';
import { watchProxies } from './auth/proxy-mistakes.ts';
import { createRejectedTokens, limitRequests } from './auth/rate-limit.ts';
import type { BatchedResponse } from './batched-response.ts';
import { noSuchRoute, toApiError } from './error-response.ts';
import { createHttpApp, type HttpAppOptions, type HttpLimits } from './http-app.ts';
import { renderOpenApi } from './openapi.ts';
import { type HandlerOf, METHODS, type Operation, type OperationSchema, ownerOf } from './operation.ts';
import { createBodyMemory } from './overload/body-memory.ts';
import { type ConcurrencyLimit, createConcurrencyLimit, OWNER_SHARE } from './overload/concurrency-limit.ts';
import { createLoopBudget } from './overload/loop-budget.ts';
import { createPlant, createPlantOperation } from './plants/create-plant.ts';
import { deletePlant, deletePlantOperation } from './plants/delete-plant.ts';
import { listPlants, listPlantsOperation } from './plants/list-plants.ts';
import { answerOtherMethods, collectMethods } from './protocol/method-not-allowed.ts';
import { compileBodyCheck } from './protocol/request-validation.ts';
import { asJson, COMMON_HEADERS } from './response-head.ts';
import { SendBufferLimit } from './send-buffer-limit.ts';
import { createTaskLimit } from './task-limit.ts';

type SharedOptions = 'connections' | 'tls' | 'log' | 'tracing' | 'trustedProxies' | 'origins' | 'isStopping';

/** Limits of the public listener, with the names of their settings. */
interface Limits extends HttpLimits {
  /**
   * Max concurrent requests, for each of five kinds: requests that read from the store; requests that write; lookups
   * of tokens that were accepted at their last lookup; lookups of other tokens; other tokens that wait for keys of the
   * identity provider.
   */
  readonly maxInFlight: number;
  /** Max requests a minute for each token; 0 means no limit. */
  readonly tokenRateLimit: number;
  /** Max invalid tokens a minute for each address; 0 means no limit. */
  readonly refusedTokenLimit: number;
  /** Max bytes of memory for all long responses that are being sent, without that of the script of `/docs`. */
  readonly sendBufferLimit: number;
}

interface AppOptions extends Pick<Required<HttpAppOptions>, SharedOptions> {
  readonly limits: Limits;
  readonly store: Store;
  /** Verifies tokens of the identity provider. Undefined if no provider is configured. */
  readonly verifyJwt: VerifyJwt | undefined;
  readonly audit: Audit;
  /** Called after each response was sent, or broken off by the service, with the fields of its log line. */
  readonly onAnswered: (request: AnsweredRequest) => void;
  readonly now: () => number;
  /** Returns the milliseconds of a monotonic clock, for rate limits and the age of cached tokens. */
  readonly monotonicNow: () => number;
  /** Prefix of every path, such as `/v1`; empty for no prefix. */
  readonly basePath: string;
  readonly metrics: Metrics;
  /** Seconds (`max-age`) in Strict-Transport-Security; 0 means that the header is not sent. */
  readonly hsts: number;
}

/**
 * Max JWTs that are verified at the same time: as many of those that were accepted at their last lookup, and as many
 * others. Node's thread pool has four threads, and its queue knows no owners.
 */
export const JWT_CHECKS_AT_ONCE = 4;

/** Error of a request whose connection a stop closes, since it took too long. No client gets it. */
const CUT_BY_STOP = new ApiError(50300, 'the service stopped');

const UNLIMITED: Pick<ConcurrencyLimit, 'run'> = { run: (_owner, work) => work() };

/** Memory for clients that read the script of the API reference, as a share of that for lists. */
export const REFERENCE_SHARE = 1 / 8;

/** All operations of the service, as listed in the OpenAPI document. */
export const operations = [createPlantOperation, listPlantsOperation, deletePlantOperation] as const;

/** Creates the HTTP application of the service. It does not listen yet. */
export function createApp(options: AppOptions): FastifyInstance {
  const { store, verifyJwt, log, audit, now, basePath, limits, metrics, hsts } = options;
  const app = createHttpApp({
    ...options,
    headers: {
      ...COMMON_HEADERS,
      ...(hsts > 0 && { 'strict-transport-security': `max-age=${hsts}` }),
    },
    countBody: createBodyMemory(limits.bodyLimit),
    allowed: [...METHODS, 'OPTIONS'].join(', '),
    noSuchRoute: () => noSuchRoute(basePath),
    onRejected: (requestId, code) => {
      log.event('rejected', { requestId, operation: 'none', status: statusOf(code), error: code });
      metrics.rejected(statusOf(code));
    },
    onClosed: (response) => complete(response, options),
    onHandshakeFailed: (err) => {
      log.event('a TLS handshake failed', { err });
      metrics.handshakeFailed();
    },
  });
  app.decorateRequest('caller', undefined);
  app.decorateRequest('replayed', undefined);
  app.decorateRequest('tokenConfirmedAt', undefined);
  // Reads and writes share one loop budget (handler time per event-loop iteration). Their concurrency limits
  // are separate, so lists still work while a lock or a slow disk blocks writes.
  const waitForLoopBudget = createLoopBudget();
  const concurrencyLimits = {
    reads: createConcurrencyLimit(limits.maxInFlight, waitForLoopBudget),
    writes: createConcurrencyLimit(limits.maxInFlight, waitForLoopBudget),
  };
  // Lookups of accepted tokens share the loop budget too. Anyone can send unknown tokens: their lookups have separate limits
  // and a separate loop budget, which networks share.
  const acceptedTokens = {
    lookups: createConcurrencyLimit(limits.maxInFlight, waitForLoopBudget),
    verifications: createTaskLimit(JWT_CHECKS_AT_ONCE),
  };
  const otherTokens = {
    lookups: createConcurrencyLimit(limits.maxInFlight, createLoopBudget()),
    verifications: createTaskLimit(JWT_CHECKS_AT_ONCE),
  };
  const tokenLimits = {
    // No limit: a 50301 would end the list. The number of lists is limited, and each checks its token at intervals.
    running: { ...acceptedTokens, lookups: UNLIMITED },
    accepted: acceptedTokens,
    other: otherTokens,
  };
  // Tokens that wait for keys of the identity provider take no slots of lookups.
  const keyWaits = createConcurrencyLimit(limits.maxInFlight, () => undefined);
  const recordLastUse = createLastUse({
    store,
    audit,
    onUseNotRecorded: (err) => log.event('the last use of a token was not recorded', { err }),
  });
  const expiringTokens = watchExpiringTokens(audit);
  metrics.watchExpiringTokens(() => expiringTokens.count(now()));
  const authentication = createAuthentication({
    findToken: (digest, group) =>
      tokenLimits[group.kind].lookups.run(group.key, () => store.findToken(digest)),
    verifyJwt,
    jwtLimitsOf: ({ kind, key }) => {
      const { lookups, verifications } = tokenLimits[kind];
      return {
        verify: (work) => lookups.run(key, () => verifications(work, key)),
        wait: (work) => (kind === 'other' ? keyWaits.run(key, work) : work()),
      };
    },
    now,
    monotonicNow: options.monotonicNow,
    onLookup: metrics.tokenLookedUp,
    onUncached: watchProxies(options.trustedProxies, log),
    audit,
    rejectedTokens: createRejectedTokens(limits.refusedTokenLimit, options.monotonicNow),
    recordUse: (token, at, sourceOf) => {
      expiringTokens.note(token, at, sourceOf);
      return recordLastUse(token, at, sourceOf);
    },
  });
  app.register(async (scope) => addRoutes(scope, authentication, concurrencyLimits, options), {
    prefix: basePath,
  });
  return app;
}

/** Logs, counts and traces a request once, after its response was sent or its connection was lost. */
function complete(response: BatchedResponse, options: AppOptions): void {
  const { fastifyRequest: request, sendError } = response;
  response.fastifyRequest = undefined;
  if (request === undefined) return;
  const { log, onAnswered, metrics, tracing, connections } = options;
  const { id: requestId, traceId, caller, replayed } = request;
  const { owner, id: token } = caller ?? {};
  const operation = operationOf(request);
  const seconds = (performance.now() - response.startedAt) / 1_000;
  const isSent = response.writableFinished;
  // A client that closed its side before the response counts as gone, even if the response was sent.
  const cut = connections.isDestroyed && !isSent ? CUT_BY_STOP : undefined;
  const failure = sendError === undefined ? cut : toApiError(sendError);
  const status = isSent && !response.isHalfClosed ? response.statusCode : failure && statusOf(failure.code);
  tracing?.endSpan(request, status);
  const ms = Math.round(seconds * 100_000) / 100;
  if (status === undefined) {
    const sent = isSent ? response.statusCode : undefined;
    const reason = reasonOfLoss(response);
    log.event('client went away', { requestId, traceId, operation, reason, status: sent, ms, owner, token });
    metrics.aborted(operation);
    return;
  }
  const apiError = failure ?? request.apiError;
  metrics.answered(operation, status, seconds, apiError);
  const error = apiError?.code;
  const limit = apiError?.limit;
  onAnswered({ requestId, traceId, operation, status, error, limit, ms, replayed, owner, token });
}

/**
 * Returns how the client went away: `ended` if it ended its side of the connection. Nothing shows whether it still reads, so its
 * response is sent. `lost`: a reset, or a loss of the network.
 */
function reasonOfLoss({ isHalfClosed, isNotRead }: BatchedResponse): 'ended' | 'notRead' | 'lost' {
  if (isHalfClosed) return 'ended';
  return isNotRead ? 'notRead' : 'lost';
}

function operationOf({ routeOptions }: FastifyRequest): string {
  return routeOptions.config?.operationId ?? 'none';
}

function addRoutes(
  scope: FastifyInstance,
  authentication: Authentication,
  { reads, writes }: Readonly<Record<'reads' | 'writes', ConcurrencyLimit>>,
  options: AppOptions,
): void {
  const { store, basePath, limits, metrics } = options;
  const document = renderOpenApi(operations, basePath);
  const methods = collectMethods(scope);
  const sendBufferLimit = new SendBufferLimit(limits.sendBufferLimit, OWNER_SHARE);
  const concurrencyLimitOf: Readonly<Record<Scope, ConcurrencyLimit>> = {
    'plants:read': reads,
    'plants:write': writes,
  };
  const rates =
    limits.tokenRateLimit === 0 ? [] : [limitRequests(limits.tokenRateLimit, options.monotonicNow)];

  function serve<O extends Operation>(operation: O, handler: HandlerOf<O>): void {
    const { operationId, method, url, scope: needed, success } = operation;
    const concurrencyLimit = concurrencyLimitOf[needed];
    const { body, ...schema }: OperationSchema = operation.schema;
    const checkBody = body === undefined ? undefined : compileBodyCheck(body);
    const authenticate = authentication.require(needed);

    scope.route({
      method: method === 'GET' ? ['GET', 'HEAD'] : method,
      url,
      schema,
      config: { operationId, authenticate, readsBody: body !== undefined },
      onRequest: [concurrencyLimit.rejectWhenFull, authenticate, ...rates],
      // Parses the body inside `concurrencyLimit.run`, so that the concurrency limit and the loop budget include
      // parsing.
      handler: (request, reply) =>
        concurrencyLimit.run(ownerOf(request), () => {
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
      sendBufferLimit,
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
  // Its own limit: clients without a token may not use up that of lists.
  addApiReference(scope, new SendBufferLimit(limits.sendBufferLimit * REFERENCE_SHARE, 1));
  answerOtherMethods(scope, methods);
}
