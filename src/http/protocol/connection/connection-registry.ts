import type { Socket } from 'node:net';
import { type InputHolder, STALLED_TICKS } from './connection-options.ts';
import { Connection, nextWaitRank } from './http-connection.ts';
import { InputLimit } from './input-limit.ts';
import { readSendQueues } from './kernel-send-queue.ts';

/** Length of a tick in milliseconds. All timeouts have this resolution. */
export const TICK_MS = 1_000;

/**
 * Ticks between two reads of the kernel's send queues, if a connection needs them. With 100,000 recently closed
 * connections, a read takes 0.2 s of CPU, too long for every tick.
 */
const QUEUE_READ_TICKS = 2;

/**
 * Max connections that one call of `makeRoom` closes, as a share of the connection limit. One call makes room for many
 * new connections.
 */
const FREED_SHARE = 0.01;

/** A TLS handshake in progress. */
interface Handshake {
  readonly socket: Socket;
  readonly waitRank: number;
  /** Number of the tick in which it began, and of the last one in which it may end. */
  readonly begunIn: number;
  readonly endsBy: number;
}

/**
 * All connections of a listener. Timeouts count timer ticks instead of clock time. A period in which the
 * process is suspended or busy counts as one tick. The process can then read the bytes that arrived in this
 * period before connections time out.
 */
export class ConnectionRegistry {
  readonly #limit: number;
  readonly #unsentLimit: number;
  readonly #open = new Set<Connection>();
  /** TLS handshakes in progress, by the addresses and ports of both ends. */
  readonly #handshakes = new Map<string, Handshake>();
  readonly #empty = Promise.withResolvers<void>();
  readonly #timer: NodeJS.Timeout;
  readonly #inputs = new InputLimit();
  #ticks = 0;
  #rejected = 0;
  #closedIncomplete = 0;
  #isAwaited = false;
  /** True while the kernel's send queues are being read. */
  #isReadingQueues = false;
  #closesWhenIdle = false;
  #isDestroyed = false;
  /**
   * True if `makeRoom` found no connection to close, until one becomes idle or the next tick. A flood of new connections
   * then causes few searches.
   */
  #hasNoneWaiting = false;

  /** `limit` is the max number of connections, `unsentLimit` the max bytes that wait for slow clients. */
  constructor(limit: number, unsentLimit: number) {
    this.#limit = limit;
    this.#unsentLimit = unsentLimit;
    this.#timer = setInterval(() => this.#tick(), TICK_MS).unref();
  }

  get size(): number {
    return this.#open.size + this.#handshakes.size;
  }

  /** Number of connections for which `makeRoom` found no room, since the start. */
  get rejected(): number {
    return this.#rejected;
  }

  /** Number of incomplete requests that `makeRoom` closed, since the start. */
  get closedIncomplete(): number {
    return this.#closedIncomplete;
  }

  /**
   * Returns true if one more connection is allowed, and counts it as rejected otherwise. At the limit, first closes some
   * connections that wait for their clients, the longest wait first: idle ones, those with a request or a TLS handshake
   * that is incomplete for `STALLED_TICKS`, and those with a response that is not read for as long.
   */
  makeRoom(): boolean {
    const hasRoom = this.size < this.#limit || this.#closeWaiting();
    if (!hasRoom) this.#rejected += 1;
    return hasRoom;
  }

  /** Closes connections that wait for their clients. Returns whether there is room now. */
  #closeWaiting(): boolean {
    if (this.#hasNoneWaiting) return false;
    const waiting = [
      ...[...this.#handshakes.values()].filter(({ begunIn }) => this.#ticks - begunIn >= STALLED_TICKS),
      ...[...this.#open].filter(({ mayBeEvicted }) => mayBeEvicted),
    ];
    this.#hasNoneWaiting = waiting.length === 0;
    waiting.sort((a, b) => a.waitRank - b.waitRank);
    for (const one of waiting.slice(0, Math.ceil(this.#limit * FREED_SHARE))) {
      if (one instanceof Connection) {
        this.#open.delete(one);
        if (!one.isIdle && one.waitsForClient) this.#closedIncomplete += 1;
        one.evict();
      } else {
        this.#handshakes.delete(keyOf(one.socket));
        one.socket.destroy();
      }
    }
    return this.size < this.#limit;
  }

  /** Counts a connection towards the limit during its TLS handshake, which may take `maxTicks` ticks. */
  beginHandshake(socket: Socket, maxTicks: number): void {
    const key = keyOf(socket);
    const [begunIn, endsBy] = [this.#ticks, this.#ticks + maxTicks];
    this.#handshakes.set(key, { socket, waitRank: nextWaitRank(), begunIn, endsBy });
    socket.once('close', () => {
      // The client may have reset this connection, and made a new one from the same port.
      if (this.#handshakes.get(key)?.socket === socket) this.#handshakes.delete(key);
      this.#resolveWhenEmpty();
    });
  }

  /** A connection became idle, so that `makeRoom` can close it. */
  noteIdle(): void {
    this.#hasNoneWaiting = false;
  }

  /** Sets the counted bytes of input of a connection. Rejects inputs above the limit. */
  countInput(connection: InputHolder, bytes: number): void {
    this.#inputs.count(connection, bytes);
  }

  add(connection: Connection): void {
    const { socket } = connection;
    this.#handshakes.delete(keyOf(socket));
    this.#open.add(connection);
    socket.once('close', () => {
      this.#open.delete(connection);
      this.#resolveWhenEmpty();
    });
    if (this.#closesWhenIdle) connection.closeWhenIdle();
  }

  /** Closes each connection after its requests have their responses. Resolves when all are closed. */
  closeWhenIdle(): Promise<void> {
    this.#closesWhenIdle = true;
    for (const { socket } of this.#handshakes.values()) socket.destroy();
    for (const connection of this.#open) connection.closeWhenIdle();
    return this.whenEmpty();
  }

  /** True from the call of `destroy` on. */
  get isDestroyed(): boolean {
    return this.#isDestroyed;
  }

  /** Resolves when no connection is open. New ones count while the listener accepts them. */
  whenEmpty(): Promise<void> {
    this.#isAwaited = true;
    this.#resolveWhenEmpty();
    return this.#empty.promise;
  }

  /** Closes all connections immediately, even with requests in flight. */
  destroy(): void {
    this.#isDestroyed = true;
    clearInterval(this.#timer);
    for (const { socket } of this.#handshakes.values()) socket.destroy();
    for (const connection of this.#open) connection.destroy();
  }

  #resolveWhenEmpty(): void {
    if (this.#isAwaited && this.size === 0) this.#empty.resolve();
  }

  #tick(): void {
    this.#hasNoneWaiting = false;
    this.#ticks += 1;
    for (const { socket, endsBy } of this.#handshakes.values())
      if (this.#ticks > endsBy) socket.destroy(handshakeTimeout());
    let unsent = 0;
    for (const connection of this.#open) {
      connection.tick();
      unsent += connection.socket.writableLength;
    }
    if (unsent > this.#unsentLimit) this.#closeStalled(unsent - this.#unsentLimit);
    if (this.#ticks % QUEUE_READ_TICKS === 0 && !this.#isReadingQueues) void this.#checkSendQueues();
  }

  /** Applies the write timeout to the connections that need their send queues. Reads no queue if there are none. */
  async #checkSendQueues(): Promise<void> {
    const waiting = [...this.#open].filter(({ needsSendQueue }) => needsSendQueue);
    if (waiting.length === 0) return;
    this.#isReadingQueues = true;
    try {
      const { of: sendQueueOf, begunAt } = await readSendQueues();
      const age = Math.floor((performance.now() - begunAt) / TICK_MS);
      for (const connection of waiting) connection.checkSendQueue(sendQueueOf, age);
    } finally {
      this.#isReadingQueues = false;
    }
  }

  #closeStalled(excess: number): void {
    const stalled = [...this.#open].filter((connection) => connection.sendProgress.stalledTicks > 0);
    stalled.sort((a, b) => b.sendProgress.stalledTicks - a.sendProgress.stalledTicks);
    let left = excess;
    for (const connection of stalled) {
      if (left <= 0) return;
      left -= connection.socket.writableLength;
      connection.destroy('notRead');
    }
  }
}

/** Creates the error of Node for a TLS handshake that took too long. Node's class is private. */
function handshakeTimeout(): Error {
  return Object.assign(new Error('TLS handshake timeout'), { code: 'ERR_TLS_HANDSHAKE_TIMEOUT' });
}

// Node has a TCP socket in the handshake and a TLS socket after it, so that the key is not the socket.
function keyOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}
