import type { Socket } from 'node:net';
import { ApiError } from '../../../api-errors.ts';
import type { BatchedResponse } from '../../batched-response.ts';
import { TOO_MANY_CONNECTIONS, TOO_MUCH_INPUT, TOO_SLOW } from '../../error-response.ts';
import { type HttpConnectionOptions, MAX_DISCARDED_BYTES, STALLED_TICKS } from './connection-options.ts';
import type { SendQueueOf } from './kernel-send-queue.ts';
import { destroyLater } from './linger.ts';
import {
  BASE_PIECES,
  BYTES_PER_PIECE,
  Framing,
  isHeadRequest,
  isLineEnd,
  MALFORMED,
  TOO_MANY_BODY_RECORDS,
  TOO_MANY_RECORDS,
} from './message-framing.ts';
import { SendProgress } from './send-progress.ts';
import { type Parser, shareInput, takeParser, UnparsedInput } from './socket-input.ts';

const NOTHING = Buffer.alloc(0);

/**
 * Passes the bytes of one connection to Node's HTTP parser, and dispatches one request after the other (RFC
 * 9112 §9.3.2). A body stays unparsed until the headers of its request are checked, except for the part that arrived with
 * them (if chunked, up to `CHUNKED_SLICE_BYTES`). Pipelined requests stay unparsed until the current request has its
 * response, and any request while the event loop is busy with others. Bytes that were already read wait in `#unparsed`,
 * all others in the kernel's receive buffer.
 */
export class Connection {
  readonly socket: Socket;
  readonly address: string | undefined;
  /** True while no request is in flight and no byte of the next request has arrived. */
  isIdle = true;
  /**
   * Rank by the time when the connection became idle, its request began, or its client was last seen to read: the lower,
   * the longer ago.
   */
  waitRank = 0;
  /** Progress of the client in reading its responses. */
  readonly sendProgress: SendProgress;
  readonly #options: HttpConnectionOptions;
  readonly #parser: Parser;
  readonly #framing: Framing;
  /** Bytes not parsed yet: an incomplete request line, the body of a request, or pipelined requests. */
  readonly #unparsed: UnparsedInput;
  /**
   * Response to a request whose headers are parsed, but which is not dispatched yet. If the first slice of its
   * body has already arrived, the parser gets that slice first.
   */
  #next: BatchedResponse | undefined;
  #current: BatchedResponse | undefined;
  /** Error of the parser or a limit that belongs to no request. */
  #error: unknown;
  /** True once the first byte of the connection has arrived. */
  #isUsed = false;
  #hasEnded = false;
  #isClosing = false;
  /** True while bytes of the next request wait until the event loop has time to parse them. */
  #waitsToParse = false;
  #closesWhenIdle = false;
  #discarded = 0;
  /**
   * TLS records since the last request was dispatched, or its response ended. While it is in flight, less one for each
   * `BYTES_PER_PIECE` bytes in them: a client can lie about the length of its body, but not about what it has sent.
   */
  #records = 0;
  /**
   * Ticks in which the connection waited for its client, since it became idle or its request began; set back while the
   * client reads the last response.
   */
  #ticks = 0;

  /** Takes over a socket that a Node HTTP server has just set up. */
  constructor(socket: Socket, options: HttpConnectionOptions) {
    this.socket = socket;
    // A closed socket has no address.
    this.address = socket.remoteAddress;
    this.waitRank = nextWaitRank();
    this.#options = options;
    this.#framing = new Framing(options.maxHeaderBytes);
    this.#unparsed = new UnparsedInput((bytes) => options.onInputCounted(this, bytes));
    this.sendProgress = new SendProgress(socket);
    this.#parser = takeParser(socket);
    const read = (chunk: Buffer): void => this.#read(chunk);
    socket.on('data', read);
    shareInput(socket, read);
    socket.on('end', () => this.#onEnd());
    socket.once('close', () => this.#unparsed.takeAndUncount());
    socket.destroySoon = () => this.#close();
  }

  /** Accepts a request from Node's parser. The body of the request may not have arrived yet. */
  take(response: BatchedResponse): void {
    this.#next = response;
  }

  /**
   * Reports a parser error or a limit to the request that is still being received. Without such a request,
   * sends an error response to the client and closes the connection.
   */
  fail(error: unknown): void {
    if (this.#noteError(error)) this.#reportError();
  }

  /** Stops parsing now, and reports the error when the event loop has time: thousands of connections may fail together. */
  #failInTurn(error: unknown): void {
    if (!this.#noteError(error)) return;
    const turn = this.#options.waitToReject(this.address);
    if (turn === undefined) this.#reportError();
    else void turn.then(() => this.#reportError());
  }

  /** Returns false if the connection has an error already, or is closed. */
  #noteError(error: unknown): boolean {
    if (this.#isClosing || this.#error !== undefined || this.socket.destroyed) return false;
    const last = this.#next ?? this.#current;
    if (!last?.isIncomplete) this.#error = error;
    else if (last.receiveError === undefined) last.receiveError = error;
    else return false;
    return true;
  }

  #reportError(): void {
    const last = this.#next ?? this.#current;
    if (last?.receiveError !== undefined) last.onReceiveError?.(last.receiveError);
    this.#advance();
  }

  /** Rejects the request that is being received, or else the first one that waits to be parsed, and frees its input. */
  rejectInput(): void {
    const kept = this.#unparsed.takeAndUncount();
    // Between two messages, the error belongs to the first request that was kept.
    if (kept.length > 0 && !this.#framing.isInMessage) this.#framing.isHead = isHeadRequest(kept);
    this.#failInTurn(TOO_MUCH_INPUT);
  }

  /** True while the connection waits for bytes of its client: of a request, its headers or its body. */
  get waitsForClient(): boolean {
    if (this.#isClosing || this.#waitsToParse || this.#error !== undefined) return false;
    return this.#current?.receivesBody ?? true;
  }

  /**
   * True if the connection is idle, or its client has left a request incomplete, or read nothing of a response, for
   * `STALLED_TICKS`.
   */
  get mayBeEvicted(): boolean {
    const ticks = this.waitsForClient ? this.#ticks : this.sendProgress.confirmedStalledTicks;
    return this.isIdle || ticks >= STALLED_TICKS;
  }

  /** Closes the connection, to make room for another one. An incomplete request gets an error response. */
  evict(): void {
    if (this.isIdle || !this.waitsForClient) this.destroy('notRead');
    else {
      this.socket.once('finish', () => this.socket.destroy());
      destroyLater(this.socket);
      this.fail(TOO_MANY_CONNECTIONS);
    }
  }

  /** Closes the connection now if it is idle, otherwise after its requests have their responses. */
  closeWhenIdle(): void {
    this.#closesWhenIdle = true;
    if (this.isIdle) this.#close();
  }

  /** Closes the connection now, even with a response in progress, for example since its client does not read it. */
  destroy(why?: 'notRead'): void {
    if (this.#current !== undefined) this.#current.isNotRead ||= why === 'notRead';
    this.#current?.destroy();
    this.socket.destroy();
  }

  /** Counts one tick and applies the timeouts, except for that of writes. */
  tick(): void {
    const { timeouts } = this.#options;
    if (this.waitsForClient) this.#ticks += 1;
    this.sendProgress.tick();
    if (!this.waitsForClient && this.sendProgress.confirmedStalledTicks === 0) this.waitRank = nextWaitRank();
    if (this.isIdle && this.#isUsed) {
      if (this.#ticks > timeouts.idle) this.#close();
    } else if (this.#isReceiving() && this.#ticks > this.#receiveLimit()) {
      this.#failInTurn(TOO_SLOW);
    }
  }

  /** True if the write timeout depends on the kernel's send queue. Most connections are idle for less, and cost no read. */
  get needsSendQueue(): boolean {
    return this.sendProgress.stalledTicks > 0 || this.#mayHaveUnread;
  }

  get #mayHaveUnread(): boolean {
    return this.isIdle && this.#isUsed && this.#ticks > this.#options.timeouts.write / 2;
  }

  /** Closes the connection if the write timeout has passed. The read of the send queue began `age` ticks ago. */
  checkSendQueue(sendQueueOf: SendQueueOf, age: number): void {
    const { write } = this.#options.timeouts;
    this.sendProgress.noteQueue(sendQueueOf, age);
    if (this.sendProgress.confirmedStalledTicks >= write) this.destroy('notRead');
    else if (this.#mayHaveUnread) {
      const unread = this.sendProgress.noteUnread(sendQueueOf);
      // A client that reads the end of its response gets half of the write timeout again.
      if (unread.hasChanged) this.#ticks = Math.ceil(write / 2);
      if (unread.bytes > 0 && this.#ticks - age > write) this.socket.destroy();
    }
  }

  #isReceiving(): boolean {
    return this.#current === undefined || this.#current.isIncomplete;
  }

  #receiveLimit(): number {
    const { headers, request } = this.#options.timeouts;
    return this.#current === undefined ? Math.min(headers, request) : request;
  }

  #read(chunk: Buffer): void {
    if (this.#options.isTls) this.#countRecord(chunk.length);
    this.#parseInTurn(this.#unparsed.takeWith(chunk));
  }

  #countRecord(bytes: number): void {
    this.#records += this.#current === undefined ? 1 : 1 - bytes / BYTES_PER_PIECE;
    if (this.#records <= BASE_PIECES) return;
    if (this.#current === undefined) this.fail(TOO_MANY_RECORDS);
    else if (this.#current.isIncomplete) this.fail(TOO_MANY_BODY_RECORDS);
  }

  /** Parses the bytes now, or later if they belong to the next request and the event loop is busy. */
  #parseInTurn(bytes: Buffer): void {
    if (bytes.length > 0 && this.#current === undefined && !this.#waitsToParse && !this.#discards()) {
      const turn = this.#options.waitToParse(this.address);
      this.#waitsToParse = turn !== undefined;
      void turn?.then(this.#parseKept);
    }
    this.#parseAll(bytes);
  }

  /** Parses the bytes that waited for the event loop, and reads on. */
  readonly #parseKept = (): void => {
    this.#waitsToParse = false;
    if (this.#isClosing || this.socket.destroyed) return;
    if (this.socket.isPaused()) this.socket.resume();
    this.#parseAll(this.#unparsed.take());
    this.#resume();
  };

  #parseAll(bytes: Buffer): void {
    let rest = bytes;
    while (rest.length > 0) {
      if (this.#discards()) {
        this.#discard(rest.length);
        return;
      }
      if (this.isIdle && !isLineEnd(rest[0])) this.#beginReceiving();
      if (this.#keepsUnparsed()) {
        this.socket.pause();
        this.#unparsed.keep(rest);
        return;
      }
      const length = this.#framing.next(rest);
      if (length === 0) {
        this.#unparsed.keep(rest);
        return;
      }
      if (length instanceof ApiError) this.fail(length);
      else {
        const isLast = length === rest.length;
        this.#parseSlice(isLast ? rest : rest.subarray(0, length), rest.length);
        rest = isLast ? NOTHING : rest.subarray(length);
      }
    }
  }

  #parseSlice(slice: Buffer, available: number): void {
    const isHead = this.#next === undefined && this.#current === undefined;
    const error = this.#parser.parse(slice, isHead && this.#framing.fieldBytes === 0);
    if (error !== undefined) {
      this.fail(error);
      return;
    }
    const response = this.#next ?? this.#current;
    this.#framing.parsed(slice.length, response?.req);
    response?.bodyParsed(this.#framing.bodyBytes);
    this.#unparsed.setFieldMemory(this.#framing.fieldMemory);
    // Delays the dispatch of a request if the next slice of its body has already arrived. After that slice is
    // parsed, most requests are complete.
    const hasMore = isHead && available > slice.length && response?.req.complete === false;
    if (!hasMore) this.#advance();
  }

  /** True while bytes stay unparsed: of the next request, or of a body that is not accepted yet. */
  #keepsUnparsed(): boolean {
    return this.#current === undefined ? this.#waitsToParse : !this.#current.receivesBody;
  }

  #beginReceiving(): void {
    this.isIdle = false;
    this.waitRank = nextWaitRank();
    this.#ticks = 0;
    this.#isUsed = true;
  }

  /** True if further bytes are not parsed. True after each call of `fail`, so that `#parseAll` ends. */
  #discards(): boolean {
    if (this.#isClosing || this.#error !== undefined || this.socket.destroyed) return true;
    const current = this.#current;
    return current?.req.complete === false && (current.isAnswered || current.receiveError !== undefined);
  }

  #discard(bytes: number): void {
    this.#discarded += Math.max(bytes, BYTES_PER_PIECE);
    if (this.#discarded < MAX_DISCARDED_BYTES) return;
    this.socket.pause();
    // Both the end of the response and Node would resume it otherwise.
    this.socket.resume = () => this.socket;
  }

  #onEnd(): void {
    if (this.#isClosing) return;
    this.#hasEnded = true;
    if (this.#current?.req.complete && !this.#current.isAnswered) this.#current.isHalfClosed = true;
    // The kept bytes are parsed first.
    if (this.#keepsUnparsed()) return;
    if (this.#isReceiving() && this.#error === undefined) this.#finishParsing();
  }

  /** Rejects a message that the client has left unfinished; otherwise closes the connection. */
  #finishParsing(): void {
    const line = this.#unparsed.take();
    const isUnfinished = line.length > 0 || this.#framing.isInMessage;
    if (isUnfinished) this.fail(MALFORMED);
    else this.socket.end();
  }

  /**
   * Dispatches the next request. After an error of the parser or a limit, sends the error response and closes the
   * connection.
   */
  #advance(): void {
    if (this.#current !== undefined || this.#isClosing || this.socket.destroyed) return;
    const next = this.#next;
    this.#next = undefined;
    if (next !== undefined) this.#dispatch(next);
    else if (this.#error !== undefined) this.#rejectConnection(this.#error);
  }

  #dispatch(response: BatchedResponse): void {
    this.#current = response;
    this.#records = 0;
    response.startedAt = performance.now();
    response.isHalfClosed = this.#hasEnded;
    response.on('close', this.#onClosed);
    Reflect.apply(this.#options.handle, undefined, [response.req, response]);
    // If the body is accepted already, the caller goes on with it.
    response.onBodyAccepted = this.#receiveBody;
  }

  /** Parses the part of the body that arrived while the headers were checked, and reads the rest. */
  readonly #receiveBody = (): void => {
    if (this.socket.isPaused()) this.socket.resume();
    this.#parseAll(this.#unparsed.take());
    if (this.#hasEnded && !this.#isClosing && this.#current?.isIncomplete) this.#finishParsing();
  };

  readonly #onClosed = (): void => {
    const response = this.#current;
    this.#current = undefined;
    this.#records = 0;
    if (response !== undefined) this.#options.onClosed(response);
    if (this.#isClosing || this.socket.destroyed) return;
    // Restarts the timeout: the bytes of the next request are not parsed before this response has ended.
    this.#ticks = 0;
    if (this.#error === undefined) this.#readOn();
    else this.#advance();
  };

  /** Parses the bytes that arrived after the last request. If there are none, the connection becomes idle. */
  #readOn(): void {
    this.isIdle = true;
    this.waitRank = nextWaitRank();
    this.#parseInTurn(this.#unparsed.take());
    this.#resume();
  }

  /** Reads further bytes, unless some are kept unparsed. */
  #resume(): void {
    if (this.#isClosing || this.#keepsUnparsed()) return;
    if (this.socket.isPaused()) this.socket.resume();
    if (this.#hasEnded) this.#finishParsing();
    else if (this.isIdle) {
      if (this.#closesWhenIdle && this.socket.readableLength === 0) this.#close();
      else this.#options.onIdle();
    }
  }

  #rejectConnection(error: unknown): void {
    const { head, body } = this.#options.reportRejection(error);
    if (this.socket.writable) this.socket.write(this.#framing.isHead ? head : head + body);
    this.#close();
  }

  /**
   * Ends our side of the connection, and keeps reading for a second. An immediate close could cause a TCP
   * reset, and the client might lose the response (RFC 9112 §9.6).
   */
  #close(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.isIdle = false;
    this.#unparsed.takeAndUncount();
    destroyLater(this.socket);
    this.socket.end();
    this.socket.resume();
  }
}

let waitRanks = 0;

/** Returns a rank above all earlier ones: a connection with a lower rank has waited longer. */
export function nextWaitRank(): number {
  waitRanks += 1;
  return waitRanks;
}
