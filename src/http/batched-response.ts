import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { headerCase } from './header-case.ts';
import { http } from './node-http.ts';
import { renderHead } from './response-head.ts';

interface Ended {
  readonly response: BatchedResponse;
  readonly send: () => void;
}

let ended: Ended[] = [];

/**
 * Response that defers `end` to the end of the event-loop iteration, so that all responses are written
 * together. A client with many connections then wakes once for several responses.
 */
export class BatchedResponse<
  Request extends IncomingMessage = IncomingMessage,
> extends http.ServerResponse<Request> {
  /** Value of `performance.now()` when the request was dispatched. */
  startedAt = 0;

  /** True once `end` was called, even if the bytes have not been sent yet. */
  isAnswered = false;

  /**
   * True if the client closed its sending side before the response was sent. The operation listPlants stops
   * early for such a client, which rarely reads the response.
   */
  isClientGone = false;

  /** Error that interrupted the request before its body was complete: malformed bytes or a timeout. */
  receiveError: unknown;

  /** Called with `receiveError` when malformed bytes or a timeout interrupt the body of the request. */
  onReceiveError: ((error: unknown) => void) | undefined;

  /** Fastify's request. Undefined before routing and after the response is closed. */
  routed: FastifyRequest | undefined;

  /**
   * Holds the status line and headers as text. Node sends this text before the body. The field is private,
   * but has existed since Node 0.10.
   */
  declare _header: string | null;
  declare _hasBody: boolean;
  #hasHeaders = false;

  override end(...args: readonly unknown[]): this {
    this.isAnswered = true;
    if (ended.length === 0) setImmediate(endAll);
    ended.push({ response: this, send: () => Reflect.apply(super.end, this, args) });
    return this;
  }

  override setHeader(name: string, value: number | string | readonly string[]): this {
    this.#hasHeaders = true;
    return super.setHeader(headerCase(name), value);
  }

  override writeHead(status: number, ...rest: readonly unknown[]): this {
    const [headers] = rest;
    const isObject = typeof headers === 'object' && headers !== null && !Array.isArray(headers);
    const head = isObject && this.#staysOpen() ? renderHead(status, headers) : undefined;
    if (head !== undefined) {
      this.statusCode = status;
      if (status === 204) this._hasBody = false;
      this._header = head;
      return this;
    }
    return Reflect.apply(
      super.writeHead,
      this,
      isObject ? [status, inHeaderCase(headers)] : [status, ...rest],
    );
  }

  /**
   * Returns true if `renderHead` may render the head: no header is set yet, and the HTTP/1.1 connection stays
   * open.
   */
  #staysOpen(): boolean {
    const { _header: head, shouldKeepAlive, req } = this;
    if (head !== null || this.#hasHeaders || !shouldKeepAlive) return false;
    return req.httpVersionMinor === 1 && req.headers.expect === undefined;
  }
}

/**
 * Returns headers as an array: name, value, name, value, … Names have the case of the OpenAPI document. An
 * object would be slow to build.
 */
function inHeaderCase(headers: object): unknown[] {
  const cased: unknown[] = [];
  for (const name of Object.keys(headers)) cased.push(headerCase(name), Reflect.get(headers, name));
  return cased;
}

/** Returns the response that a Fastify reply wraps. */
export function responseOf({ raw }: FastifyReply): BatchedResponse {
  if (!(raw instanceof BatchedResponse)) throw new Error('the response was not created by createListener');
  return raw;
}

function endAll(): void {
  const all = ended;
  ended = [];
  for (const { response, send } of all) {
    try {
      send();
    } catch (error: unknown) {
      response.destroy(error instanceof Error ? error : undefined);
    }
  }
}
