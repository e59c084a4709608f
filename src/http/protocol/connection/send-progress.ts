import type { Socket } from 'node:net';
import type { SendQueueOf } from './kernel-send-queue.ts';

/** Observes whether the client of a connection accepts the bytes of its responses. */
export class SendProgress {
  /** Ticks since the client last accepted a byte. */
  stalledTicks = 0;
  readonly #socket: Socket;
  /** The kernel's send queue, as last read; undefined if the client has accepted a byte since. */
  #queue: { readonly bytes: number | undefined } | undefined;
  /** Bytes of complete responses in the kernel's send queue, as last read. */
  #unreadBytes = 0;
  /** `stalledTicks` when the kernel's send queue was last read, if that had not changed since the read before. */
  #confirmedStalledTicks = 0;
  #lastUnsent = 0;
  #lastWritten = 0;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Counts one tick. */
  tick(): void {
    const { writableLength, bytesWritten } = this.#socket;
    const hasMoved = this.#hasMoved;
    this.#lastUnsent = writableLength;
    this.#lastWritten = bytesWritten;
    this.stalledTicks = writableLength === 0 || hasMoved ? 0 : this.stalledTicks + 1;
    if (this.stalledTicks === 0) this.#confirmedStalledTicks = 0;
    if (hasMoved) this.#queue = undefined;
  }

  /** Ticks in which the client has accepted no byte, as far as the kernel's send queue confirms it; 0 once it reads again. */
  get confirmedStalledTicks(): number {
    return this.#socket.writableLength === 0 || this.#hasMoved ? 0 : this.#confirmedStalledTicks;
  }

  /** True if the client has accepted bytes since the last tick. */
  get #hasMoved(): boolean {
    const { writableLength, bytesWritten } = this.#socket;
    return bytesWritten !== this.#lastWritten || writableLength < this.#lastUnsent;
  }

  /**
   * Compares the send queue, whose read began `age` ticks ago, with that of the last call, and stores it. Ignores a queue
   * that may be older than the last byte that the client accepted.
   */
  noteQueue(sendQueueOf: SendQueueOf, age: number): void {
    if (this.stalledTicks <= age || this.#hasMoved) return;
    // The kernel takes new bytes from Node only when a third of the send buffer is free. So the length of the
    // kernel's send queue must be unchanged too: a client that reads slowly would look stalled otherwise.
    const bytes = sendQueueOf(this.#socket);
    const isSame = this.#queue !== undefined && this.#queue.bytes === bytes;
    if (this.#queue !== undefined && !isSame) this.stalledTicks = 1;
    this.#queue = { bytes };
    this.#confirmedStalledTicks = isSame ? this.stalledTicks - age : 0;
  }

  /**
   * Stores and returns the number of bytes of complete responses that the kernel has accepted and the client has not.
   * Also returns whether it has changed since the last call.
   */
  noteUnread(sendQueueOf: SendQueueOf): { readonly bytes: number; readonly hasChanged: boolean } {
    const bytes = sendQueueOf(this.#socket) ?? 0;
    const hasChanged = bytes > 0 && bytes !== this.#unreadBytes;
    this.#unreadBytes = bytes;
    return { bytes, hasChanged };
  }
}
