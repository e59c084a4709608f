import type { IncomingMessage } from 'node:http';
import { ApiError } from '../../../api-errors.ts';

const CR = 13;
const LF = 10;
const H = 0x48;
const R = 0x52;
const SPACE = 0x20;
const ONE = 0x31;
const HTTP_VERSION = ' HTTP/1.1';

/**
 * Max bytes of a chunked body per call of the parser. The parser creates an object for each chunk, so a call
 * with many tiny chunks would block other requests.
 */
export const CHUNKED_SLICE_BYTES = 1_024;

/**
 * A body may have BASE_PIECES chunks, and come in as many TLS records, plus one for each BYTES_PER_PIECE bytes. The limit
 * exists because even a tiny one costs microseconds, and one packet can contain hundreds of them.
 */
export const BASE_PIECES = 512;
export const BYTES_PER_PIECE = 128;

/** Matches the rest of the method of a request line (RFC 9112 §3) to its space, or to the end if no byte follows. */
const METHOD = /^[!#$%&'*+.^_`|~0-9A-Za-z-]*( |$)/;

/**
 * Max bytes to keep of one line in a chunked body (chunk size or trailer). For a chunk size, 20 hexadecimal
 * digits are enough: a longer size exceeds every body limit.
 */
const MAX_LINE = 20;

/**
 * Max headers of a request; as many trailers. Node keeps each as two strings, so that tiny ones take far more memory than
 * their bytes.
 */
export const MAX_FIELDS = 100;

/** Memory of a header or trailer in Node, in addition to its bytes. */
export const MEMORY_PER_FIELD = 128;

/** Errors of messages that are malformed, or too long for the parser. They are shared: clients can cause many. */
export const MALFORMED = new ApiError(40004, 'the request is not well-formed HTTP/1.1 (RFC 9112)');
export const TOO_MANY_RECORDS = new ApiError(
  43100,
  'the headers came in too many small TLS records; send larger ones',
);
export const TOO_MANY_BODY_RECORDS = new ApiError(
  41300,
  'the body came in too many small TLS records; send larger ones',
);
const TOO_MANY_CHUNKS = new ApiError(41300, 'the body has too many small chunks; send larger ones');
export const FIELDS_TOO_LARGE = new ApiError(
  43100,
  `the request line and headers, or the trailers, are too large, or there are more than ${MAX_FIELDS} of either`,
);
export const EXTENSIONS_TOO_LARGE = new ApiError(
  41300,
  'the chunk extensions of the body are too large; send none',
);
export const UNKNOWN_METHOD = new ApiError(50100, 'the method is not implemented');

type Part = 'start' | 'head' | 'length' | 'chunked';

/**
 * Divides the bytes of a connection into slices for Node's parser. A slice never crosses the end of headers
 * or of a message. Validates only the protocol version and the limits of this file: the parser rejects other invalid bytes.
 */
export class Framing {
  /** True if the last request that began is a HEAD request. */
  isHead = false;
  /** Bytes of unfinished headers or trailers, which the parser keeps; 0 if it keeps none. */
  fieldBytes = 0;
  /** Bytes of memory that the headers and trailers of an incomplete request take, in the parser and in the request. */
  fieldMemory = 0;
  /** Bytes of the body of the last request, as its length or its chunk sizes give them so far. */
  bodyBytes = 0;
  readonly #maxBytes: number;
  #part: Part = 'start';
  /** Complete lines of the headers, without the request line, or of the trailers. */
  #fieldLines = 0;
  /** Number of them in the next slice. */
  #newLines = 0;
  /** Bytes of an incomplete request line that need no second look. */
  #scanned = 0;
  /** True if these bytes have a method and its space. */
  #hasMethod = false;
  /** Remaining bytes of the body, or of the current chunk and its line end. */
  #left = 0;
  /** Chunks of the body whose sizes have arrived, however the network divides them. */
  #chunks = 0;
  #line = '';
  /** Bytes of an incomplete line of the headers or of a chunked body, of which `#line` keeps only the first. */
  #lineBytes = 0;
  #isInTrailers = false;
  /** Bytes of the last slice that come before the trailers. */
  #beforeFields = 0;

  /** `maxBytes` is the max number of bytes of the request line and headers together, and of trailers. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** True from the end of a request line until the end of the message. */
  get isInMessage(): boolean {
    return this.#part !== 'start';
  }

  /**
   * Returns the number of bytes to parse next. Returns 0 if the request line is incomplete, and an error if
   * the line is too long or not HTTP, if headers, trailers or a line of a chunked body are too long, or if there are
   * too many headers, trailers or chunks.
   */
  next(bytes: Buffer): number | ApiError {
    this.#newLines = 0;
    const length = this.#next(bytes);
    if (length instanceof ApiError || !this.#isInFields) return length;
    this.#fieldLines += this.#newLines;
    this.fieldMemory += length - this.#beforeFields + MEMORY_PER_FIELD * this.#newLines;
    return this.#exceedsLimits(length) ? FIELDS_TOO_LARGE : length;
  }

  get #isInFields(): boolean {
    return this.#part === 'head' || (this.#part === 'chunked' && this.#isInTrailers);
  }

  /** True if there are too many headers or trailers, or too many bytes of them, with those in a slice of `length` bytes. */
  #exceedsLimits(length: number): boolean {
    // The last line is empty.
    return this.#fieldLines > MAX_FIELDS + 1 || this.#fieldsWith(length) > this.#maxBytes;
  }

  /** Returns the bytes of headers or trailers with those in a slice of `bytes` bytes. */
  #fieldsWith(bytes: number): number {
    return this.fieldBytes + bytes - this.#beforeFields;
  }

  #next(bytes: Buffer): number | ApiError {
    switch (this.#part) {
      case 'start':
        return this.#start(bytes);
      case 'head':
        return this.#endOfHead(bytes, 0);
      case 'length':
        return Math.min(this.#left, bytes.length);
      case 'chunked':
        return this.#endOfChunks(bytes.subarray(0, CHUNKED_SLICE_BYTES));
    }
  }

  /** Records that `bytes` bytes were parsed. `request` is undefined while its headers are incomplete. */
  parsed(bytes: number, request: IncomingMessage | undefined): void {
    if (request !== undefined) this.#advance(bytes, request);
    this.fieldBytes = this.#isInFields ? this.#fieldsWith(bytes) : 0;
  }

  #advance(bytes: number, request: IncomingMessage): void {
    if (request.complete) this.#part = 'start';
    else if (this.#part === 'length') this.#left -= bytes;
    else if (this.#part === 'head') this.#beginBody(request);
    if (this.#part === 'start') {
      this.fieldMemory = 0;
      this.#beforeFields = 0;
    }
  }

  #start(bytes: Buffer): number | ApiError {
    const lineEnds = countLineEnds(bytes);
    if (lineEnds > 0) return lineEnds;
    this.isHead = isHeadRequest(bytes);
    const lineEnd = bytes.indexOf(LF, this.#scanned);
    if (lineEnd === -1 || lineEnd >= this.#maxBytes) {
      const isLine = this.#hasMethod || this.#scanMethod(bytes);
      this.#scanned = bytes.length;
      if (isLine && bytes.length < this.#maxBytes) return 0;
      if (this.#hasMethod) return new ApiError(41400, 'the URI is too long');
      return Math.min(bytes.length, this.#maxBytes);
    }
    if (!isHttp(bytes, lineEnd))
      return new ApiError(40004, 'the request line must end in HTTP/1.1 or HTTP/1.0 (RFC 9112 §2.3)');
    if (isPri(bytes, lineEnd)) return UNKNOWN_METHOD;
    this.#part = 'head';
    this.bodyBytes = 0;
    this.#fieldLines = 0;
    this.#lineBytes = 0;
    this.#scanned = 0;
    this.#hasMethod = false;
    return this.#endOfHead(bytes, lineEnd + 1);
  }

  /** Scans the rest of a method, to the first space. Returns false if it is not one. */
  #scanMethod(bytes: Buffer): boolean {
    const scanned = METHOD.exec(bytes.toString('latin1', this.#scanned, this.#maxBytes));
    this.#hasMethod = scanned?.[1] === ' ' && this.#scanned + scanned[0].length > 1;
    return scanned !== null && (this.#hasMethod || scanned[1] === '');
  }

  /**
   * Counts the headers from `begin` on. Returns the end of the empty line behind them, or of all bytes if that line has not
   * arrived. A line with one byte before its line feed is the empty one: the parser rejects any other byte than CR there.
   */
  #endOfHead(bytes: Buffer, begin: number): number {
    let lineBegin = begin - this.#lineBytes;
    for (let at = begin; at < bytes.length; at += 1) {
      if (bytes[at] !== LF) continue;
      this.#newLines += 1;
      if (at - lineBegin === 1) return at + 1;
      lineBegin = at + 1;
    }
    this.#lineBytes = bytes.length - lineBegin;
    return bytes.length;
  }

  #beginBody({ headers }: IncomingMessage): void {
    this.#part = headers['transfer-encoding'] === undefined ? 'length' : 'chunked';
    this.#left = this.#part === 'length' ? Number(headers['content-length']) : 0;
    this.bodyBytes = this.#left;
    this.#chunks = 0;
    this.#line = '';
    this.#lineBytes = 0;
    this.#isInTrailers = false;
  }

  /** Returns how many of `bytes` belong to the current chunked message (RFC 9112 §7.1), or an error. */
  #endOfChunks(bytes: Buffer): number | ApiError {
    let at = 0;
    this.#beforeFields = 0;
    while (at < bytes.length) {
      if (this.#left > 0) {
        const taken = Math.min(this.#left, bytes.length - at);
        this.#left -= taken;
        at += taken;
      } else {
        const lineEnd = bytes.indexOf(LF, at);
        const end = lineEnd === -1 ? bytes.length : lineEnd + 1;
        this.#line = (this.#line + bytes.toString('latin1', at, end))
          .replace(/^0+(?=0)/, '')
          .slice(0, MAX_LINE);
        this.#lineBytes += end - at;
        at = end;
        const isData = !this.#isInTrailers;
        if (isData && this.#lineBytes > this.#maxBytes) return EXTENSIONS_TOO_LARGE;
        if (lineEnd !== -1 && this.#endLine()) return at;
        if (this.#chunks > BASE_PIECES + this.bodyBytes / BYTES_PER_PIECE) return TOO_MANY_CHUNKS;
        if (isData && this.#isInTrailers) this.#beforeFields = at;
      }
    }
    return at;
  }

  /** Processes a complete line of a chunked body. Returns true for the last line of the message. */
  #endLine(): boolean {
    const line = this.#line;
    this.#line = '';
    this.#lineBytes = 0;
    if (this.#isInTrailers) {
      this.#newLines += 1;
      return line === '\r\n';
    }
    const size = Number.parseInt(line, 16);
    if (size === 0) {
      this.#isInTrailers = true;
      this.#fieldLines = 0;
    } else {
      this.#left = size + 2;
      this.bodyBytes += size;
      this.#chunks += 1;
    }
    return false;
  }
}

/**
 * Returns false for a request line of another protocol or version. Node's parser accepts RTSP, ICE, HTTP/0.9 and HTTP/2.0
 * too. It rejects all others, so it is enough to compare three bytes of ` HTTP/1.1`.
 */
function isHttp(bytes: Buffer, lineEnd: number): boolean {
  const end = bytes[lineEnd - 1] === CR ? lineEnd - 1 : lineEnd;
  const start = end - HTTP_VERSION.length;
  return bytes[start] === SPACE && bytes[start + 1] === H && bytes[end - '1.1'.length] === ONE;
}

/**
 * Returns true for the bytes of a HEAD request, whose error response has no body (RFC 9110 §9.3.2). Empty lines may come
 * before it.
 */
export function isHeadRequest(bytes: Buffer): boolean {
  const at = countLineEnds(bytes);
  return bytes[at] === H && bytes.toString('latin1', at, at + 5) === 'HEAD ';
}

/**
 * Returns true for the unknown method PRI. Node's parser takes it for the preface of HTTP/2, and calls it
 * malformed when the headers have ended.
 */
function isPri(bytes: Buffer, lineEnd: number): boolean {
  return bytes[1] === R && /^PRI [^ ]+ HTTP\/1\./.test(bytes.toString('latin1', 0, lineEnd));
}

/** Counts CR and LF before a request. Some clients send empty lines there (RFC 9112 §2.2). */
function countLineEnds(bytes: Buffer): number {
  let count = 0;
  while (isLineEnd(bytes[count])) count += 1;
  return count;
}

export function isLineEnd(byte: number | undefined): boolean {
  return byte === CR || byte === LF;
}
