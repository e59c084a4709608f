import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';
import { codeOf } from '../errors.ts';
import type { SendQueueOf } from './kernel-send-queue.ts';
import type { BatchedResponse } from './response.ts';

const CR = 13;
const LF = 10;

/** Bytes that Node's parser gets at once. They limit the requests of a connection that exist as objects: to about 50. */
const SLICE_BYTES = 1_024;

/** The same once a slice had more requests than this, until the connection is idle again: about 5. */
const SHORT_SLICE_BYTES = 128;
const MANY_REQUESTS = 4;

/** RFC 9112 §9.6: what is read after a final response that was sent before the request had ended. */
const MAX_DISCARDED_BYTES = 65_536;
const LINGER_MS = 1_000;

/** Ticks of the sweep, about a second each. They are not counted while the process is suspended. */
interface ConnectionTimeouts {
  readonly headers: number;
  readonly request: number;
  readonly idle: number;
  readonly write: number;
}

export interface ConnectionOptions {
  readonly timeouts: ConnectionTimeouts;
  readonly handle: RequestListener<never, never>;
  /** Called once for each dispatched request: its response was sent, or its connection is gone. */
  readonly onClosed: (response: BatchedResponse) => void;
  /** The bytes of an error response, for an error that no request object exists for. Undefined: close without one. */
  readonly renderError: (error: unknown) => string | undefined;
}

/** The request line is longer than request line and headers may be together. */
export class TargetTooLong extends Error {
  override readonly name = 'TargetTooLong';
}

/** The request did not arrive in time. */
export class RequestTimeout extends Error {
  override readonly name = 'RequestTimeout';
}

/**
 * Feeds Node's HTTP parser with the bytes of one connection, a slice at a time, and dispatches one request after the
 * other (RFC 9112 §9.3.2). While a request is executed nothing more is parsed: what follows waits as bytes, in the
 * socket's buffer and then in the kernel's, not as objects.
 */
export class Connection {
  readonly socket: Socket;
  /** Whether no request is in flight and no byte of the next one was parsed. */
  isIdle = true;
  /** Lower for connections that have been idle for longer. */
  idleRank = 0;
  readonly #options: ConnectionOptions;
  readonly #parse: (chunk: Buffer) => void;
  readonly #endParser: () => void;
  readonly #queue: BatchedResponse[] = [];
  #current: BatchedResponse | undefined;
  /** An error of the parser that belongs after all queued requests. */
  #error: unknown;
  /** Whether the connection has sent a request before. */
  #isUsed = false;
  /** Whether the request line of the next request has arrived. */
  #hasRequestLine = false;
  #lastByte = LF;
  #sliceBytes = SLICE_BYTES;
  #hasEnded = false;
  #isClosing = false;
  #closesWhenIdle = false;
  #discarded = 0;
  #ticks = 0;
  #sendQueue: number | undefined;
  /** Whether the send queue was looked at since the client last accepted a byte. */
  #hasLooked = false;
  #stalledTicks = 0;
  #lastUnsent = 0;
  #lastWritten = 0;

  /** Takes over a socket that an HTTP server of Node has just set up. */
  constructor(socket: Socket, options: ConnectionOptions) {
    this.socket = socket;
    this.idleRank = nextIdleRank();
    this.#options = options;
    this.#parse = takeListener(socket, 'data');
    this.#endParser = takeListener(socket, 'end');
    // Node reads a socket that has a listener in JavaScript, rather than in its parser.
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('end', () => this.#onEnd());
    socket.destroySoon = () => this.#close();
  }

  /** Queues a request that Node's parser has just met. Its body may not have arrived. */
  take(response: BatchedResponse): void {
    this.#queue.push(response);
  }

  /** Rejects CONNECT. Node has taken its listeners off the socket, so a response in flight could not end. */
  rejectTunnel(error: unknown): void {
    if (this.#current !== undefined || this.#queue.length > 0) this.socket.destroy();
    else this.fail(error);
  }

  /** Handles an error of the parser or the socket. */
  fail(reason: unknown): void {
    if (this.#isClosing || this.#error !== undefined || this.socket.destroyed) return;
    const error = this.#isInTarget(reason) ? new TargetTooLong('the URI is too long') : reason;
    const last = this.#queue.at(-1) ?? this.#current;
    if (last !== undefined && isIncomplete(last)) {
      last.receiveError = error;
      last.onReceiveError?.(error);
    } else {
      this.#error = error;
      this.#advance();
    }
  }

  /** Closes the connection now if it is idle, else when its requests have their responses. */
  closeWhenIdle(): void {
    this.#closesWhenIdle = true;
    if (this.isIdle) this.#close();
  }

  /** Bytes that wait for the client to read. */
  unsentBytes(): number {
    return this.socket.writableLength;
  }

  /** Ticks since the client last accepted a byte of a response. */
  stalledTicks(): number {
    return this.#stalledTicks;
  }

  /** One step of time: closes the connection when a timeout has passed. `sendQueueOf` comes with some ticks only. */
  tick(sendQueueOf: SendQueueOf | undefined): void {
    const { timeouts } = this.#options;
    this.#ticks += 1;
    this.#measureStall();
    if (sendQueueOf !== undefined && this.#hasStalledInKernel(sendQueueOf)) this.socket.destroy();
    else if (this.isIdle && this.#isUsed) {
      if (this.#ticks > timeouts.idle) this.#close();
      // A response that the kernel has taken whole may still be unread.
      else if (this.#ticks > timeouts.write && (sendQueueOf?.(this.socket) ?? 0) > 0) this.socket.destroy();
    } else if (this.#isReceiving() && this.#ticks > this.#receiveLimit()) {
      this.fail(new RequestTimeout('the request took too long to arrive'));
    }
  }

  #measureStall(): void {
    const { writableLength, bytesWritten } = this.socket;
    const hasMoved = bytesWritten !== this.#lastWritten || writableLength < this.#lastUnsent;
    this.#lastUnsent = writableLength;
    this.#lastWritten = bytesWritten;
    this.#stalledTicks = writableLength === 0 || hasMoved ? 0 : this.#stalledTicks + 1;
    if (hasMoved) this.#hasLooked = false;
  }

  // The kernel takes more only when a third of its buffer is free, though the client may read all the time.
  #hasStalledInKernel(sendQueueOf: SendQueueOf): boolean {
    if (this.#stalledTicks === 0) return false;
    const sendQueue = sendQueueOf(this.socket);
    const isSame = this.#hasLooked && sendQueue === this.#sendQueue;
    if (!isSame && this.#hasLooked) this.#stalledTicks = 1;
    this.#sendQueue = sendQueue;
    this.#hasLooked = true;
    return isSame && this.#stalledTicks >= this.#options.timeouts.write;
  }

  #isInTarget(error: unknown): boolean {
    if (this.#hasRequestLine || codeOf(error) !== 'HPE_HEADER_OVERFLOW') return false;
    return !packetOf(error).includes(LF);
  }

  #isReceiving(): boolean {
    return this.#current === undefined ? this.#queue.length === 0 : isIncomplete(this.#current);
  }

  #receiveLimit(): number {
    const { headers, request } = this.#options.timeouts;
    return this.#current === undefined ? Math.min(headers, request) : request;
  }

  #read(chunk: Buffer): void {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.#discards()) {
        this.#discard(rest.length);
        return;
      }
      if (this.#mustWait()) {
        this.socket.pause();
        this.socket.unshift(rest);
        return;
      }
      const slice = rest.length <= this.#sliceBytes ? rest : rest.subarray(0, this.#sliceBytes);
      if (this.isIdle && !isEmptyLine(slice)) this.#beginReceiving();
      rest = rest.subarray(slice.length);
      this.#lastByte = slice[slice.length - 1] ?? LF;
      this.#parse(slice);
      this.#checkUpgrade(slice);
      if (this.#queue.length > MANY_REQUESTS) this.#sliceBytes = SHORT_SLICE_BYTES;
      if (this.#current === undefined) {
        this.#hasRequestLine ||= slice.includes(LF);
        this.#advance();
      }
    }
  }

  // Node's parser drops the bytes behind a request to upgrade, so the connection goes on only if there were none.
  #checkUpgrade(slice: Buffer): void {
    const last = this.#queue.at(-1);
    if (last?.req.headers.upgrade === undefined) return;
    const end = slice.indexOf('\r\n\r\n') + 4 + Number(last.req.headers['content-length'] ?? 0);
    if (end !== slice.length) last.shouldKeepAlive = false;
  }

  #beginReceiving(): void {
    this.isIdle = false;
    if (this.#isUsed) this.#ticks = 0;
    this.#isUsed = true;
  }

  #mustWait(): boolean {
    return this.#queue.length > 0 || (this.#current?.req.complete ?? false);
  }

  #discards(): boolean {
    if (this.#isClosing || this.#error !== undefined) return true;
    const current = this.#current;
    return current?.isAnswered === true && !current.req.complete;
  }

  #discard(bytes: number): void {
    this.#discarded += bytes;
    if (this.#discarded > MAX_DISCARDED_BYTES) this.socket.pause();
  }

  #onEnd(): void {
    if (this.#isClosing) return;
    this.#hasEnded = true;
    if (this.#current?.req.complete) this.#current.isClientGone = true;
    if (this.#isReceiving() && this.#error === undefined) this.#endParser();
  }

  /** Dispatches the next request, or does what comes after the last one. */
  #advance(): void {
    if (this.#current !== undefined || this.#isClosing || this.socket.destroyed) return;
    const next = this.#queue.shift();
    if (next !== undefined) this.#dispatch(next);
    else if (this.#error !== undefined) this.#rejectConnection(this.#error);
  }

  #dispatch(response: BatchedResponse): void {
    this.#current = response;
    response.startedAt = performance.now();
    response.isClientGone = this.#hasEnded;
    response.on('close', this.#onClosed);
    Reflect.apply(this.#options.handle, undefined, [response.req, response]);
  }

  readonly #onClosed = (): void => {
    const response = this.#current;
    this.#current = undefined;
    if (response !== undefined) this.#options.onClosed(response);
    if (this.#isClosing || this.socket.destroyed) return;
    // A request that arrived in part had to wait for this one.
    this.#ticks = 0;
    this.#advance();
    if (this.#current !== undefined || this.#isClosing) return;
    this.#becomeIdle();
  };

  #becomeIdle(): void {
    this.isIdle = true;
    this.idleRank = nextIdleRank();
    // Behind other bytes the next request may have begun already.
    this.#hasRequestLine = this.#lastByte !== LF;
    this.#ticks = 0;
    if (this.#hasEnded) this.#endParser();
    else if (this.socket.isPaused()) this.socket.resume();
    else if (this.#closesWhenIdle) this.#close();
    else this.#sliceBytes = SLICE_BYTES;
  }

  #rejectConnection(error: unknown): void {
    const bytes = this.socket.writable ? this.#options.renderError(error) : undefined;
    if (bytes === undefined) this.socket.destroy();
    else {
      this.socket.write(bytes);
      this.#close();
    }
  }

  /** RFC 9112 §9.6: ends our side and reads on for a moment, lest a reset of the connection overtakes the response. */
  #close(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.isIdle = false;
    this.#queue.length = 0;
    const linger = setTimeout(() => this.socket.destroy(), LINGER_MS).unref();
    this.socket.once('close', () => clearTimeout(linger));
    this.socket.end();
    this.socket.resume();
  }
}

/** RFC 9112 §2.2: some clients send one behind a body. */
function isEmptyLine(slice: Buffer): boolean {
  return slice.length <= 2 && slice.every((byte) => byte === CR || byte === LF);
}

let idleRanks = 0;

function nextIdleRank(): number {
  idleRanks += 1;
  return idleRanks;
}

function isIncomplete({ req, isAnswered }: BatchedResponse): boolean {
  return !req.complete && !isAnswered;
}

/** Takes the listener of Node's server for an event of a new connection off, to call it when we say. */
function takeListener(socket: Socket, event: 'data' | 'end'): (...args: unknown[]) => void {
  const [listener] = socket.listeners(event).slice(-1);
  if (listener === undefined) throw new Error(`Node's server does not listen to ${event} of a connection`);
  Reflect.apply(socket.off, socket, [event, listener]);
  return (...args) => void Reflect.apply(listener, socket, args);
}

/** The bytes that Node's parser failed in; empty when there are none. */
export function packetOf(error: unknown): Buffer {
  const packet: unknown = error instanceof Error && 'rawPacket' in error ? error.rawPacket : undefined;
  return Buffer.isBuffer(packet) ? packet : Buffer.alloc(0);
}
