import type { IncomingHttpHeaders } from 'node:http';
import { Socket } from 'node:net';
import type { ApiError } from '../../../api-errors.ts';
import { codeOf } from '../../../thrown-errors.ts';
import { CONNECT_UNSUPPORTED } from '../../error-response.ts';
import { http } from '../../node-http.ts';
import { EXTENSIONS_TOO_LARGE, FIELDS_TOO_LARGE, MALFORMED, UNKNOWN_METHOD } from './message-framing.ts';

const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) [^ ]+ HTTP\/1\.[01]$/;

/** Max bytes of one read by libuv. */
const READ_BYTES = 65_536;

/** The bytes of the last read of any socket. They are valid until the callback of that read returns. */
const input = Buffer.alloc(READ_BYTES);

type OnRead = (length: number) => boolean;

/**
 * Symbols of the internal socket properties in which Node stores the option `onread`. Node accepts this
 * option only for outgoing connections, so `shareInput` sets these properties directly.
 */
const properties = findProperties();

/**
 * Makes an accepted socket read into one buffer that all sockets share. Otherwise Node allocates 64 KiB for each read:
 * about 6 µs of CPU. And `pause` then stops reading at once: a TLS socket would go on until it has buffered 64 KiB, also of
 * records of one byte. Changes nothing if Node's internals are unknown; the socket then emits `data`.
 */
export function shareInput(socket: Socket, onInput: (chunk: Buffer) => void): void {
  const handle: unknown = Reflect.get(socket, '_handle');
  if (properties === undefined || typeof handle !== 'object' || handle === null) return;
  const use: unknown = Reflect.get(handle, 'useUserBuffer');
  if (typeof use !== 'function') return;
  const onRead: OnRead = (length) => {
    onInput(input.subarray(0, length));
    return true;
  };
  Reflect.set(socket, properties.buffer, input);
  Reflect.set(socket, properties.callback, onRead);
  Reflect.apply(use, handle, [input]);
}

/**
 * Copies `bytes` if they are in the shared buffer, which the next read overwrites. Also copies them if they
 * are less than half of the memory that they would keep.
 */
export function keepInput(bytes: Buffer): Buffer {
  if (bytes.buffer !== input.buffer && 2 * bytes.length >= bytes.buffer.byteLength) return bytes;
  const kept = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(kept);
  return kept;
}

/** Bytes of unparsed input whose memory is not counted, so that short pipelines are always accepted. */
export const UNCOUNTED_INPUT_BYTES = 4 * 1024;

const NOTHING = Buffer.alloc(0);

/** The bytes of one connection that are not parsed yet. Counts their memory, and that of headers and trailers. */
export class UnparsedInput {
  readonly #onCounted: (bytes: number) => void;
  #bytes: Buffer = NOTHING;
  #fieldMemory = 0;
  #counted = 0;

  /** Creates an empty input. `onCounted` gets the number of counted bytes when it changes. */
  constructor(onCounted: (bytes: number) => void) {
    this.#onCounted = onCounted;
  }

  /**
   * Returns the kept bytes with `chunk` behind them, to parse them. They are no longer kept, but stay counted until the
   * next call of another method: an input that grows keeps its place among those that wait.
   */
  takeWith(chunk: Buffer): Buffer {
    if (this.#bytes.length === 0) return chunk;
    const bytes = Buffer.concat([this.#bytes, chunk]);
    this.#bytes = NOTHING;
    return bytes;
  }

  /** Keeps bytes to parse them later. */
  keep(bytes: Buffer): void {
    this.#bytes = keepInput(bytes);
    this.#count();
  }

  /** Returns the kept bytes, which are then no longer kept. */
  take(): Buffer {
    const bytes = this.#bytes;
    this.#bytes = NOTHING;
    this.#count();
    return bytes;
  }

  /** Takes the bytes, and counts nothing any more: the request was rejected, or the connection closed. */
  takeAndUncount(): Buffer {
    this.#fieldMemory = 0;
    return this.take();
  }

  /** Sets the bytes of memory for headers and trailers of a request that is incomplete; 0 when it is complete. */
  setFieldMemory(bytes: number): void {
    this.#fieldMemory = bytes;
    this.#count();
  }

  #count(): void {
    const counted = Math.max(0, this.#bytes.length + this.#fieldMemory - UNCOUNTED_INPUT_BYTES);
    if (counted === this.#counted) return;
    this.#counted = counted;
    this.#onCounted(counted);
  }
}

/** Node's HTTP parser of one connection. */
export interface Parser {
  /**
   * Parses bytes. When the headers of a request are complete, the server emits `request`. Returns an error for invalid
   * bytes, and for CONNECT. `isStart` is true if the bytes begin with a request line.
   */
  parse(bytes: Buffer, isStart: boolean): ApiError | undefined;
}

interface NodeParser {
  /** Returns the number of parsed bytes, or an error. */
  execute(bytes: Buffer): unknown;
  /** The request whose headers were parsed last. `upgrade` is true for CONNECT only. */
  readonly incoming: { readonly upgrade: boolean; readonly headers: IncomingHttpHeaders } | null;
}

/**
 * Takes over the parser of a new connection from Node's server, which then no longer reads the socket. Throws an Error if
 * the server has not set up the socket as this function expects.
 *
 * After a request with `Upgrade`, Node hides the errors of the parser until the next headers are complete: `execute` only
 * returns that it parsed fewer bytes. So `parse` calls it instead of Node's listener, which ignores that. For an error at the
 * last byte, the count is not lower, so the error shows only at the next bytes, and only if they have another address: the
 * count is the distance from the address of the error. `Framing` therefore rejects fields and lines that are too long before
 * the parser does.
 */
export function takeParser(socket: Socket): Parser {
  const parser: unknown = Reflect.get(socket, 'parser');
  if (!isNodeParser(parser)) throw new Error("Node's server has no parser for a connection");
  for (const event of ['data', 'end']) {
    const [listener] = socket.listeners(event).slice(-1);
    if (listener === undefined) throw new Error(`Node's server has no ${event} listener`);
    Reflect.apply(socket.off, socket, [event, listener]);
  }
  return {
    parse(bytes, isStart) {
      const parsed = parser.execute(
        parser.incoming?.headers.upgrade === undefined ? bytes : Buffer.from(bytes),
      );
      if (parsed !== bytes.length)
        return isStart && hasUnknownMethod(bytes) ? UNKNOWN_METHOD : errorOf(codeOf(parsed));
      if (parser.incoming?.upgrade !== true) return undefined;
      return CONNECT_UNSUPPORTED;
    },
  };
}

function isNodeParser(value: unknown): value is NodeParser {
  return typeof value === 'object' && value !== null && 'execute' in value && 'incoming' in value;
}

/** Returns the error for an error code of Node's parser. */
function errorOf(code: string): ApiError {
  if (code === 'HPE_HEADER_OVERFLOW') return FIELDS_TOO_LARGE;
  return code === 'HPE_CHUNK_EXTENSIONS_OVERFLOW' ? EXTENSIONS_TOO_LARGE : MALFORMED;
}

/** True if the bytes begin with a well-formed request line (RFC 9112 §3) whose method is unknown (RFC 9110 §9.1). */
function hasUnknownMethod(bytes: Buffer): boolean {
  const [line = ''] = bytes.toString('latin1').split('\r\n', 1);
  const method = REQUEST_LINE.exec(line)?.[1];
  return method !== undefined && !http.METHODS.includes(method);
}

function findProperties(): { readonly buffer: symbol; readonly callback: symbol } | undefined {
  const callback: OnRead = () => true;
  const socket = new Socket({ onread: { buffer: input, callback } });
  const find = (value: unknown): symbol | undefined =>
    Object.getOwnPropertySymbols(socket).find((key) => Reflect.get(socket, key) === value);
  const found = { buffer: find(input), callback: find(callback) };
  socket.destroy();
  return found.buffer === undefined || found.callback === undefined
    ? undefined
    : { buffer: found.buffer, callback: found.callback };
}
