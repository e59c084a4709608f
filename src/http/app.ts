import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyRequest,
  type HookHandlerDoneFunction,
  LogController,
} from 'fastify';
import type { TSchema } from 'typebox';
import { Refusal, statusOf } from '../errors.ts';
import { compileCheck, fromText, propertyOf } from '../schema.ts';
import type { Store } from '../store.ts';
import { createAuthentication } from './authentication.ts';
import { createPlant, createPlantOperation } from './create-plant.ts';
import { deletePlant, deletePlantOperation } from './delete-plant.ts';
import { parseJsonBody } from './json.ts';
import { listPlants, listPlantsOperation } from './list-plants.ts';
import { refuseContent, refuseMalformed } from './message-rules.ts';
import { headerCase, renderOpenApi } from './openapi.ts';
import { type HandlerOf, type Operation, sendJson } from './operation.ts';
import { refuseOnSocket, sendRefusal, toRefusal } from './refusals.ts';

export interface AppOptions {
  readonly store: Store;
  readonly log: FastifyBaseLogger;
  readonly now: () => number;
  /** A prefix of every path, such as `/v1`; empty for none. */
  readonly basePath: string;
  /** Bytes. */
  readonly bodyLimit: number;
  /** Called after each answer, with the seconds it took. */
  readonly onAnswered: (operationId: string, status: number, seconds: number) => void;
}

const HEADER_BYTES = 16 * 1024;
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 15_000;
const KEEP_ALIVE_MS = 65_000;
const TIMEOUT_CHECK_MS = 1_000;

/** All operations of the service; the OpenAPI document lists these. */
export const operations = [createPlantOperation, listPlantsOperation, deletePlantOperation] as const;

/** The service as an HTTP application, not yet listening. */
export function createApp(options: AppOptions): FastifyInstance {
  const { store, log, now, basePath, bodyLimit, onAnswered } = options;
  const requestIds = createRequestIds();
  const app: FastifyInstance = Fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'requestId' }),
    genReqId: requestIds,
    bodyLimit,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    routerOptions: { maxParamLength: HEADER_BYTES },
    rewriteUrl: originForm,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    http: {
      maxHeaderSize: HEADER_BYTES,
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: TIMEOUT_CHECK_MS,
      // Node would answer without a body; `refuseMalformed` looks instead.
      requireHostHeader: false,
    },
    clientErrorHandler: (error, socket) => {
      const requestId = requestIds();
      const code = refuseOnSocket(error, socket, requestId);
      if (code !== undefined) log.info({ requestId, status: statusOf(code), error: code }, 'refused');
    },
    frameworkErrors: (error, request, reply) => {
      reply.header('x-request-id', request.id);
      void sendRefusal(reply, toRefusal(error));
    },
  });

  takeExpectations(app);
  app.decorateRequest('caller', undefined);
  app.addHttpMethod('DELETE', { hasBody: false, overrideExisting: true });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body: Buffer, done) => {
    done(null, body);
  });
  app.setValidatorCompiler(({ schema, httpPart }) => compileRequestCheck(schema as TSchema, httpPart ?? ''));

  app.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id);
    refuseMalformed(request);
    done();
  });
  app.addHook('preParsing', (request, reply, _payload, done) => {
    if (request.headers.expect !== undefined) reply.raw.writeContinue();
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    const { operationId = 'none' } = request.routeOptions.config ?? {};
    const { statusCode: status, elapsedTime } = reply;
    request.log.info(
      {
        operation: operationId,
        status,
        ms: Math.round(elapsedTime * 100) / 100,
        owner: request.caller?.owner,
      },
      'answered',
    );
    onAnswered(operationId, status, elapsedTime / 1_000);
    done();
  });

  app.setErrorHandler((error, request, reply) => {
    const refusal = toRefusal(error);
    if (refusal.code >= 50000) request.log.error({ err: error }, 'failed');
    return sendRefusal(reply, refusal);
  });
  app.setNotFoundHandler((request, reply) =>
    sendRefusal(
      reply,
      new Refusal(40401, `there is nothing at ${pathOf(request)}; see ${basePath}/openapi.json`),
    ),
  );

  const authentication = createAuthentication({
    store,
    now,
    onUseNotRecorded: (error) => log.warn({ err: error }, 'the last use of a token was not recorded'),
  });
  const document = renderOpenApi(operations, basePath);

  app.register(
    async (scope) => {
      const methods = collectMethods(scope);
      const serve = <O extends Operation>(operation: O, handler: HandlerOf<O>): void => {
        scope.route({
          method: operation.method === 'GET' ? ['GET', 'HEAD'] : operation.method,
          url: operation.url,
          schema: operation.schema,
          config: { operationId: operation.operationId },
          onRequest: [
            authentication.require(operation.scope),
            refuseContent(bodyLimit, 'body' in operation.schema),
          ],
          preValidation: parseBody,
          handler: handler as HandlerOf<Operation>,
        });
      };
      serve(createPlantOperation, createPlant(store));
      serve(listPlantsOperation, listPlants(store, `${basePath}${listPlantsOperation.url}`));
      serve(deletePlantOperation, deletePlant(store));
      scope.route({
        method: ['GET', 'HEAD'],
        url: '/openapi.json',
        config: { operationId: 'openapi' },
        handler: async (_request, reply) => sendJson(reply, document),
      });
      answerOtherMethods(scope, methods);
    },
    { prefix: basePath },
  );
  return app;
}

// Not in the content type parser, whose errors close the connection.
function parseBody(request: FastifyRequest, _reply: unknown, done: HookHandlerDoneFunction): void {
  if (Buffer.isBuffer(request.body)) request.body = parseJsonBody(request.body);
  done();
}

function createRequestIds(): () => string {
  const prefix = randomBytes(6).toString('base64url');
  let count = 0;
  return () => {
    count += 1;
    return `${prefix}-${count.toString(36)}`;
  };
}

/** RFC 9112 §3.2.2: a server must accept the absolute form of a request target too. */
function originForm({ url = '/' }: { url?: string | undefined }): string {
  if (url.startsWith('/')) return url;
  return /^https?:\/\/[^/?#]*(.*)$/i.exec(url)?.[1]?.replace(/^(?!\/)/, '/') ?? url;
}

function pathOf(request: FastifyRequest): string {
  return request.url.split('?', 1)[0] ?? '';
}

/** Node would answer `Expect` by itself, before anybody knows whether the request is welcome. */
function takeExpectations({ server }: FastifyInstance): void {
  const take = (request: IncomingMessage, response: ServerResponse): boolean =>
    server.emit('request', request, response);
  server.on('checkContinue', take);
  server.on('checkExpectation', take);
}

/** The check of one part of a request: texts become what the schema says, and the message names the part at fault. */
function compileRequestCheck(schema: TSchema, part: string) {
  const check = compileCheck(schema);
  const names: Record<string, string> = {
    params: 'path parameter',
    querystring: 'query parameter',
    headers: 'header',
  };
  return (value: unknown) => {
    const checked = check(part === 'params' || part === 'querystring' ? decode(schema, value) : value);
    if ('value' in checked) return checked;
    const { field, demand } = checked.violation;
    const subject =
      field === ''
        ? 'the body'
        : `the ${names[part] ?? 'field'} \`${part === 'headers' ? headerCase(field) : field}\``;
    return { error: new Refusal(40000, `${subject} ${demand}`) };
  };
}

function decode(schema: TSchema, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([name, text]) => [
    name,
    fromText(propertyOf(schema, name), text),
  ]);
  return Object.fromEntries(entries);
}

function collectMethods(scope: FastifyInstance): Map<string, Set<string>> {
  const methods = new Map<string, Set<string>>();
  scope.addHook('onRoute', ({ url, method }) => {
    const known = methods.get(url) ?? new Set<string>();
    for (const one of [method].flat()) known.add(one);
    methods.set(url, known);
  });
  return methods;
}

/** RFC 9110 §15.5.6 and §9.3.7: every path answers the methods it does not have with 405, and OPTIONS with 204. */
function answerOtherMethods(scope: FastifyInstance, methods: ReadonlyMap<string, ReadonlySet<string>>): void {
  for (const [fullUrl, known] of [...methods]) {
    const url = fullUrl.slice(scope.prefix.length);
    const allow = [...known, 'OPTIONS'].join(', ');
    scope.route({
      method: 'OPTIONS',
      url,
      handler: async (_request, reply) => reply.code(204).header('allow', allow).send(),
    });
    scope.route({
      method: scope.supportedMethods.filter((method) => method !== 'OPTIONS' && !known.has(method)),
      url,
      handler: async (request, reply) =>
        sendRefusal(
          reply,
          new Refusal(40500, `${request.method} is not allowed here; ${allow} are`, { allow }),
        ),
    });
  }
}
