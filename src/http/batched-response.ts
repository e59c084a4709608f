import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { headerCase } from './header-names.ts';
import { http } from './node-http.ts';
import { type CommonHeaders, renderHead } from './response-head.ts';

interface Ended {
  readonly response: BatchedResponse;
  readonly args: readonly unknown[];
}

let ended: Ended[] = [];

/**
 * Response that defers `end` to the end of the event-loop iteration, so that all responses are written
 * together. A client with many connections then wakes once for several responses.
 *
 * It also holds how far its request was received: `http-connection.ts` sets errors, and `request-body.ts` accepts
 * the body.
 */
export class BatchedResponse<
  Request extends IncomingMessage = IncomingMessage,
> extends http.ServerResponse<Request> {
  /** Value of `performance.now()` when the request was dispatched. */
  startedAt = 0;

  /** True once `end` was called, even if the bytes have not been sent yet. */
  isAnswered = false;

  /**
   * True if the client closed its sending side before `end` was called. The operation listPlants stops
   * early for such a client, which rarely reads the response.
   */
  isHalfClosed = false;

  /** True if the service closed the connection, since the client did not read the response. */
  isNotRead = false;

  /** Error that interrupted the request before its body was complete: malformed bytes or a timeout. */
  receiveError: unknown;

  /** Called with `receiveError` when malformed bytes or a timeout interrupt the body of the request. */
  onReceiveError: ((error: unknown) => void) | undefined;

  /** Error for which the response was not sent to its end. The connection is then closed. */
  sendError: unknown;

  /** Bytes of the body of the request, as its length or its chunk sizes give them so far. */
  bodyBytes = 0;

  /** Called when a part of this body was parsed, with the value of `bodyBytes` before. */
  onBodyParsed: ((bytesBefore: number) => void) | undefined;

  /** True once `acceptBody` was called. Until then, only the part of the body that arrived with the headers is parsed. */
  isBodyAccepted = false;
  /** Called by `acceptBody`. */
  onBodyAccepted: (() => void) | undefined;

  /** Fastify's request. Undefined before routing and after the response is closed. */
  fastifyRequest: FastifyRequest | undefined;

  /**
   * Holds the status line and headers as text. Node sends this text before the body. The field is private,
   * but has existed since Node 0.10.
   */
  declare _header: string | null;
  declare _hasBody: boolean;
  #hasHeaders = false;
  /** Value of `Content-Length` if `renderHead` rendered the head, otherwise NaN. */
  #contentLength = Number.NaN;
  #requestId = '';
  #common: CommonHeaders | undefined;

  /** True until the request has arrived, or `end` was called. */
  get isIncomplete(): boolean {
    return !this.req.complete && !this.isAnswered;
  }

  /**
   * True while the bytes of the connection belong to the body of this request, and may be parsed. Before the
   * headers are checked, only the part that arrived with them is parsed: a long body of small chunks would use memory and
   * time that no limit counts.
   */
  get receivesBody(): boolean {
    return this.isBodyAccepted && !this.req.complete;
  }

  /** Sets `bodyBytes` after a part of the request was parsed. */
  bodyParsed(bytes: number): void {
    const bytesBefore = this.bodyBytes;
    this.bodyBytes = bytes;
    this.onBodyParsed?.(bytesBefore);
  }

  /** Lets the connection parse the body of the request. */
  acceptBody(): void {
    this.isBodyAccepted = true;
    this.onBodyAccepted?.();
  }

  override end(...args: readonly unknown[]): this {
    this.isAnswered = true;
    if (ended.length === 0) setImmediate(endAll);
    ended.push({ response: this, args });
    return this;
  }

  /**
   * Closes the connection, with a reset if that cuts a response off. After a normal close, the kernel would still send what
   * it has buffered, even after the token is revoked. A client of HTTP/1.0 would take the part for the whole response, which
   * ends with its connection (RFC 9112 §8).
   */
  override destroy(error?: Error): this {
    if (this.headersSent && !this.writableFinished) reset(this.socket);
    return super.destroy(error);
  }

  /** Closes the connection because of an error, so that the client notices that the response is incomplete. */
  breakOff(error: unknown): void {
    // A list may fail twice: by the next page and by the check of its token.
    this.sendError ??= error;
    this.destroy();
  }

  /** Ends the response now, with the arguments of `end`. Only `endAll` calls it. */
  endNow(args: readonly unknown[]): void {
    const [body, ...rest] = args;
    // A text with as many characters as bytes is ASCII. Node sends it at less cost as a part of the head.
    if (this._hasBody && typeof body === 'string' && body.length === this.#contentLength) {
      const head = this._header;
      this._header += body;
      Reflect.apply(super.end, this, ['', ...rest]);
      // Otherwise the text would stay in memory until the client has read it, although the socket has a copy.
      this._header = head;
    } else Reflect.apply(super.end, this, args);
  }

  /** Sets `X-Request-Id` and the common headers. Other headers of the response override these. */
  setCommonHeaders(requestId: string, common: CommonHeaders): void {
    this.#requestId = requestId;
    this.#common = common;
  }

  override setHeader(name: string, value: number | string | readonly string[]): this {
    this.#hasHeaders = true;
    return super.setHeader(headerCase(name), value);
  }

  override writeHead(status: number, ...rest: readonly unknown[]): this {
    const [headers] = rest;
    const isObject = typeof headers === 'object' && headers !== null && !Array.isArray(headers);
    const head = isObject && this.#staysOpen() ? this.#renderHead(status, headers) : undefined;
    if (head !== undefined) {
      this.statusCode = status;
      if (status === 204) this._hasBody = false;
      this._header = head;
      return this;
    }
    const common = this.#commonFields(isObject ? headers : {});
    if (isObject)
      return Reflect.apply(super.writeHead, this, [status, inHeaderCase({ ...common, ...headers })]);
    for (const [name, value] of Object.entries(common)) super.setHeader(headerCase(name), value);
    return Reflect.apply(super.writeHead, this, [status, ...rest]);
  }

  #renderHead(status: number, headers: object): string | undefined {
    const common = this.#common;
    if (common === undefined || common.isClosing()) return undefined;
    const head = renderHead(status, this.#requestId, common, headers);
    if (head !== undefined) this.#contentLength = Number(Reflect.get(headers, 'content-length'));
    return head;
  }

  /** Returns the common headers, without those that this response overrides. */
  #commonFields(headers: object): Record<string, string> {
    if (this.#common === undefined) return {};
    const fields: Record<string, string> = { 'x-request-id': this.#requestId, ...this.#common.fields };
    if (this.#common.isClosing()) fields.connection = 'close';
    const connections = [fields.connection, this.getHeader('connection'), Reflect.get(headers, 'connection')];
    if (connections.includes('close') || !this.#mayStayOpen()) delete fields['keep-alive'];
    for (const name of Object.keys(fields)) if (this.hasHeader(name)) delete fields[name];
    return fields;
  }

  /**
   * Returns true if `renderHead` may render the head: no header is set yet, and the HTTP/1.1 connection stays
   * open.
   */
  #staysOpen(): boolean {
    return this._header === null && !this.#hasHeaders && this.#mayStayOpen();
  }

  /**
   * Returns false if Node may close the connection after this response. Node decides that only when it renders
   * the head: for HTTP/1.0 by the length of the body, for `Expect` by whether 100 Continue was sent.
   */
  #mayStayOpen(): boolean {
    const { shouldKeepAlive, req } = this;
    return shouldKeepAlive && req.httpVersionMinor === 1 && req.headers.expect === undefined;
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

/** Closes a socket by a TCP reset. Node has no method to reset a TLS socket, but resets the TCP socket below it. */
function reset(socket: Socket | null): void {
  const parent: unknown = socket === null ? null : Reflect.get(socket, '_parent');
  if (parent instanceof Socket) parent.resetAndDestroy();
  else socket?.resetAndDestroy();
}

/** Returns the response that a Fastify reply wraps. */
export function responseOf({ raw }: FastifyReply): BatchedResponse {
  if (!(raw instanceof BatchedResponse)) throw new Error('the response was not created by createHttpServer');
  return raw;
}

function endAll(): void {
  const all = ended;
  ended = [];
  for (const { response, args } of all) {
    try {
      response.endNow(args);
    } catch (error: unknown) {
      // Node rejected the status or a header of this response. The other responses are still sent.
      response.breakOff(error);
    }
  }
}
