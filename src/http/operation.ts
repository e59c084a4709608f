import type { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static, TSchema } from 'typebox';
import type { ApiError, ErrorCode } from '../api-errors.ts';
import type { Scope } from '../token.ts';

/** Who sends a request, as its token tells. */
interface Caller {
  readonly owner: string;
  /** Of the token; absent for a JWT. */
  readonly id?: string;
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller | undefined;
    /** What traces call the request; undefined while tracing is off. */
    traceId: string | undefined;
    /** What ended the response behind its headers; undefined when nothing did. */
    brokenOff: ApiError | undefined;
  }
  interface FastifyContextConfig {
    /** The name of the operation, in the log and the metrics. */
    operationId?: string;
  }
}

export interface OperationSchema {
  readonly params?: TSchema;
  readonly querystring?: TSchema;
  readonly headers?: TSchema;
  readonly body?: TSchema;
}

export interface ResponseHeader {
  readonly description: string;
  readonly example: string;
}

/** One operation, said once: the routes, the checks and the OpenAPI document are all made from it. */
export interface Operation {
  readonly operationId: string;
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** The path in the form of the router, with `:name` for a parameter. */
  readonly url: string;
  readonly summary: string;
  readonly description: string;
  /** The scope a token needs. */
  readonly scope: Scope;
  readonly schema: OperationSchema;
  readonly success: {
    readonly status: number;
    readonly description: string;
    readonly body?: TSchema;
    readonly headers?: Readonly<Record<string, ResponseHeader>>;
  };
  /** The errors of its own; those of every operation are added to them. */
  readonly errors: readonly ErrorCode[];
}

type StaticOf<S extends OperationSchema, Part extends keyof OperationSchema> = S[Part] extends TSchema
  ? Static<S[Part]>
  : unknown;

/** The request of an operation, its parts typed by the operation's own schema. */
type RequestOf<O extends Operation> = FastifyRequest<{
  Params: StaticOf<O['schema'], 'params'>;
  Querystring: StaticOf<O['schema'], 'querystring'>;
  Headers: StaticOf<O['schema'], 'headers'>;
  Body: StaticOf<O['schema'], 'body'>;
}>;

/**
 * Resolves to the body of the answer, for the router to send. Not to the reply: that would wait for the client to have
 * read it, and what the request holds of the service would wait with it.
 */
export type HandlerOf<O extends Operation> = (
  request: RequestOf<O>,
  reply: FastifyReply,
) => Promise<string | Readable | undefined>;

/** The client closed its connection before its response began; there is nothing more to do. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

/** The owner whose plants a request is about; only behind authentication. */
export function ownerOf(request: FastifyRequest): string {
  if (request.caller === undefined) throw new Error('the route has no authentication');
  return request.caller.owner;
}

/**
 * Readies a reply for a body that is JSON already. It gets a serializer that changes nothing: without one, the router would
 * add a charset, which JSON has none of (RFC 8259 §11).
 */
export function asJson(reply: FastifyReply, json: string): string {
  reply.header('content-type', 'application/json').serializer(asItIs);
  return json;
}

function asItIs(json: string): string {
  return json;
}
