import Fastify, { type FastifyInstance } from 'fastify';
import type { Registry } from 'prom-client';
import Gauge from 'prom-client/lib/gauge.js';
import { ApiError, messageOf } from '../api-errors.ts';
import type { EventLog } from '../observability/log-events.ts';
import { responseOf } from './batched-response.ts';
import { logFailure, RETRY_SOON, renderRawError, sendApiError, toApiError } from './error-response.ts';
import { http } from './node-http.ts';
import type { ConnectionRegistry } from './protocol/connection-registry.ts';
import { isAboutServer, originForm, rejectMalformed } from './protocol/http-conformance.ts';
import { createListener, type Limits } from './protocol/http-server.ts';
import { answerOtherMethods, collectMethods } from './protocol/method-not-allowed.ts';
import { receiveBody } from './protocol/request-body.ts';
import { createRequestIds } from './protocol/request-id.ts';
import { withoutCompilers } from './protocol/request-validation.ts';
import { COMMON_HEADERS, renderCommon } from './response-head.ts';

/** A condition that /ready checks. While the condition is not met, `check` rejects with the reason. */
interface ReadinessCheck {
  readonly name: string;
  check(): Promise<void>;
}

interface AdminOptions {
  readonly registry: Registry;
  readonly checks: readonly ReadinessCheck[];
  readonly limits: Limits;
  readonly connections: ConnectionRegistry;
  readonly log: EventLog;
}

/** Max renderings of /metrics per second. Further requests get the previous text, up to a second old. */
export const SCRAPES_RENDERED = 10;
const SECOND_MS = 1_000;

/** Timeout of a readiness check in milliseconds: shorter than the probe interval of common load balancers. */
export const CHECK_MS = 1_000;

/** Creates the application for operators, on a separate port: /live, /ready and /metrics. */
export function createAdmin({ registry, checks, limits, connections, log }: AdminOptions): FastifyInstance {
  gaugeChecks(registry, checks);
  const scrape = limitScrapes(() => registry.metrics());
  const nextRequestId = createRequestIds();
  const commonHeaders = renderCommon(COMMON_HEADERS);
  const admin: FastifyInstance = Fastify({
    schemaController: withoutCompilers,
    return503OnClosing: false,
    genReqId: nextRequestId,
    rewriteUrl: originForm,
    serverFactory: (handler) =>
      createListener(handler, {
        limits,
        tls: undefined,
        connections,
        renderError: (error) =>
          renderRawError(toApiError(error), { 'x-request-id': nextRequestId(), ...COMMON_HEADERS }),
        onClosed: () => undefined,
        onHandshakeFailed: () => undefined,
      }),
    clientErrorHandler: () => undefined,
    frameworkErrors: (error, request, reply) => {
      responseOf(reply).setCommonHeaders(request.id, commonHeaders);
      sendApiError(reply, toApiError(error));
    },
  });
  for (const method of http.METHODS) admin.addHttpMethod(method, { hasBody: false, overrideExisting: true });
  // No route reads a body, so that none is kept.
  admin.addHook(
    'preParsing',
    receiveBody(limits.body, () => undefined),
  );
  admin.addHook('onRequest', (request, reply, done) => {
    const response = responseOf(reply);
    response.setCommonHeaders(request.id, commonHeaders);
    if (response.receiveError !== undefined) throw response.receiveError;
    rejectMalformed(request, limits.uri);
    if (request.is404 && !isAboutServer(request.raw))
      throw new ApiError(40401, 'no such route; this port serves /live, /ready and /metrics');
    done();
  });
  admin.setNotFoundHandler((_request, reply) => reply.code(204).header('allow', 'GET, HEAD, OPTIONS').send());
  const methods = collectMethods(admin);
  admin.get('/live', async () => ({ status: 'ok' }));
  admin.get('/ready', async () => {
    const failures = await Promise.all(checks.map(failureOf));
    const failed = failures.filter((failure) => failure !== undefined);
    if (failed.length > 0) throw new ApiError(50300, `not ready: ${failed.join('; ')}`, RETRY_SOON);
    return { status: 'ok', checks: Object.fromEntries(checks.map(({ name }) => [name, 'ok'])) };
  });
  admin.get('/metrics', async (_request, reply) => {
    reply.header('content-type', registry.contentType);
    return scrape();
  });
  answerOtherMethods(admin, methods);
  admin.setErrorHandler((error, request, reply) => {
    const apiError = toApiError(error);
    // Error 50300 (not ready) is not logged: the response of /ready already contains the reason.
    if (apiError.code === 50000) logFailure(log, request, error);
    sendApiError(reply, apiError);
  });
  return admin;
}

function limitScrapes(render: () => Promise<string>): () => Promise<string> {
  let begun = performance.now();
  let rendered = 0;
  let last: Promise<string> | undefined;
  return () => {
    const now = performance.now();
    if (now - begun >= SECOND_MS) {
      begun = now;
      rendered = 0;
    }
    if (last !== undefined && rendered >= SCRAPES_RENDERED) return last;
    rendered += 1;
    last = render();
    return last;
  };
}

/**
 * Registers a gauge with the result of each readiness check, to show why an instance is not ready. Metrics of
 * requests cannot show the reason: such an instance gets no requests.
 */
function gaugeChecks(registry: Registry, checks: readonly ReadinessCheck[]): void {
  new Gauge({
    name: 'plant_store_ready',
    help: '1 if a check of /ready passes, else 0',
    labelNames: ['check'],
    registers: [registry],
    async collect() {
      const failures = await Promise.all(checks.map(failureOf));
      for (const [index, { name }] of checks.entries())
        this.set({ check: name }, failures[index] === undefined ? 1 : 0);
    },
  });
}

/** Runs a readiness check. Resolves to undefined if it passes, otherwise to its name and error message. */
async function failureOf({ name, check }: ReadinessCheck): Promise<string | undefined> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(`no response within ${CHECK_MS} ms`)), CHECK_MS);
  try {
    await Promise.race([check(), late.promise]);
  } catch (error: unknown) {
    return `${name}: ${messageOf(error)}`;
  } finally {
    clearTimeout(timer);
  }
  return undefined;
}
