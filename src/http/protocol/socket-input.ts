import { Socket } from 'node:net';

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
 * about 6 µs of CPU. Changes nothing if Node's internals are unknown; the socket then emits `data`.
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

/** The bytes of one connection that are not parsed yet. */
export class UnparsedInput {
  readonly #countInput: (bytes: number) => boolean;
  #bytes: Buffer = NOTHING;
  #counted = 0;

  /**
   * Creates an empty input. `countInput` counts more bytes, or less if negative. It returns false if all
   * connections together have too many.
   */
  constructor(countInput: (bytes: number) => boolean) {
    this.#countInput = countInput;
  }

  get isEmpty(): boolean {
    return this.#bytes.length === 0;
  }

  /** Keeps bytes to parse them later. Returns false if all connections together keep too many. */
  keep(bytes: Buffer): boolean {
    this.#bytes = keepInput(bytes);
    return this.count(this.#bytes.length);
  }

  /** Returns the kept bytes, which are then no longer kept. */
  take(): Buffer {
    const bytes = this.#bytes;
    this.#bytes = NOTHING;
    this.count(0);
    return bytes;
  }

  /** Sets the number of bytes that count for this connection. Returns false if all together have too many. */
  count(bytes: number): boolean {
    const change = Math.max(0, bytes - UNCOUNTED_INPUT_BYTES) - this.#counted;
    this.#counted += change;
    return change === 0 || this.#countInput(change);
  }
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
