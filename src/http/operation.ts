import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import type { ErrorCode } from '../api-errors.ts';
import type { Static, TSchema } from '../schema.ts';
import type { Scope } from '../token.ts';

/** Methods of the operations, and HEAD, which every GET has. `Allow` and CORS list them. */
export const METHODS = ['GET', 'HEAD', 'POST', 'DELETE'] as const;

/** The sender of a request, as identified by its token. */
interface Caller {
  readonly owner: string;
  /** Id of a token of the service; absent for a JWT. */
  readonly id?: string;
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller | undefined;
    /** True if the response repeats that of an earlier request with the same idempotency key. */
    replayed: true | undefined;
  }
  interface FastifyContextConfig {
    /** Name of the operation in the log and in metrics. */
    operationId?: string;
    /** True if the operation reads the body of its requests. Other bodies are checked and discarded. */
    readsBody?: boolean;
    /** Checks the token. Runs again when the body arrived later than the headers. */
    authenticate?: RequestHook;
  }
}

/** Checks a request before its body arrives. Calls `done`, with an ApiError if the request is rejected, or throws it. */
export type RequestHook = (
  request: FastifyRequest,
  reply: FastifyReply,
  done: HookHandlerDoneFunction,
) => void;

export interface OperationSchema {
  readonly params?: TSchema;
  readonly querystring?: TSchema;
  readonly headers?: TSchema;
  readonly body?: TSchema;
}

/**
 * An OpenAPI link from one operation to another. A value of the first operation's request or response becomes
 * a parameter of the linked operation.
 */
interface OperationLink {
  readonly description: string;
  /** Parameters of the linked operation, as OpenAPI runtime expressions such as `$request.body#/id`. */
  readonly parameters: Readonly<Record<string, string>>;
}

/**
 * The single definition of an operation. Routes, validation, types and the OpenAPI document derive from it.
 */
export interface Operation {
  readonly operationId: string;
  readonly method: Exclude<(typeof METHODS)[number], 'HEAD'>;
  /** Path in the router's syntax: `:name` is a parameter. */
  readonly url: string;
  readonly summary: string;
  readonly description: string;
  readonly scope: Scope;
  readonly schema: OperationSchema;
  readonly success: {
    readonly status: number;
    readonly description: string;
    readonly body?: TSchema;
    readonly headers?: Readonly<Record<string, TSchema>>;
    /** OpenAPI links; each key is the operationId of the linked operation. */
    readonly links?: Readonly<Record<string, OperationLink>>;
  };
  /** Error codes of this operation, except the codes that every operation can return. */
  readonly errors: readonly ErrorCode[];
}

type StaticOf<S extends OperationSchema, Part extends keyof OperationSchema> = S[Part] extends TSchema
  ? Static<S[Part]>
  : unknown;

/** The request of an operation, typed by the operation's schema. */
type RequestOf<O extends Operation> = FastifyRequest<{
  Params: StaticOf<O['schema'], 'params'>;
  Querystring: StaticOf<O['schema'], 'querystring'>;
  Headers: StaticOf<O['schema'], 'headers'>;
  Body: StaticOf<O['schema'], 'body'>;
}>;

/**
 * Handles a request and resolves to the response body, which the router then sends; to undefined if there is none, or
 * if `sendPieces` sends it. Do not return Fastify's `reply` object: the request would then count as in flight until the
 * client has read the response.
 */
export type HandlerOf<O extends Operation> = (
  request: RequestOf<O>,
  reply: FastifyReply,
) => Promise<string | undefined>;

/** Returns the owner of the request's token. Works only after authentication. */
export function ownerOf(request: FastifyRequest): string {
  if (request.caller === undefined) throw new Error('the route has no authentication');
  return request.caller.owner;
}
