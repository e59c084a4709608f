import { ApiError, ShareExceeded } from '../api-errors.ts';
import { afterRunning } from '../running-time.ts';
import type { BatchedResponse } from './batched-response.ts';
import { ClientGone, RETRY_SOON } from './error-response.ts';

/** Max milliseconds that a response waits for memory before it fails with 50301. */
export const WAIT_MS = 5_000;

/**
 * Max milliseconds that a response waits for memory after its headers were sent. After this time the response
 * is cut off.
 */
export const BEGUN_WAIT_MS = 30_000;

/**
 * Bytes of memory counted for each byte of a response. The number was measured. It includes the garbage that
 * remains after the response text is built.
 */
export const MEMORY_PER_BYTE = 2;

interface Waiting {
  readonly response: HeldBytes;
  readonly memory: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/**
 * Limits the total memory of the long responses that clients are still reading, and the share of each owner.
 * Does not count short responses.
 */
export class SendBufferLimit {
  readonly #limit: number;
  readonly #limitOfOwner: number;
  readonly #usedBy = new Map<string, number>();
  /** Responses that hold memory. */
  readonly #holding = new Set<HeldBytes>();
  /** Responses that wait for memory. The first has waited longest. */
  readonly #waiting: Waiting[] = [];
  #used = 0;

  /** `limit` is in bytes, `ownerShare` the part of it that one owner may use. */
  constructor(limit: number, ownerShare: number) {
    this.#limit = limit;
    this.#limitOfOwner = limit * ownerShare;
  }

  /** Starts to count the memory of one response. Releases this memory when the response closes. */
  open(response: BatchedResponse, owner: string): HeldBytes {
    return new HeldBytes(response, owner, this);
  }

  /** Takes memory without waiting. Throws an ApiError (50301) if a limit would be exceeded. */
  take(memory: number, response: HeldBytes): void {
    if (this.#used + memory > this.#limit || !this.#fitsOwner(memory, response.owner))
      throw this.#tooMuch(memory, response);
    this.#count(memory, response);
  }

  /**
   * Waits until the memory is free. If all responses that hold reserved memory wait for more, the first one of these
   * gets its memory immediately. This prevents a deadlock. The same holds for the responses of one owner. Rejects with
   * an ApiError (50301) after a timeout.
   */
  async reserve(memory: number, response: HeldBytes): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.push({ response, memory, resolve, reject });
    this.wakeNext();
    const waitMs = response.isBegun() ? BEGUN_WAIT_MS : WAIT_MS;
    const cancelTimeout = afterRunning(waitMs, () => this.#cancel(response, this.#tooMuch(memory, response)));
    try {
      await promise;
    } finally {
      cancelTimeout();
    }
  }

  /** Releases memory of a response: first that which was taken by `reserve`. */
  release(memory: number, response: HeldBytes): void {
    response.reserved -= Math.min(memory, response.reserved);
    this.#count(-memory, response);
    this.wakeNext();
  }

  /** Releases all memory of a closed response, and rejects its pending reservation, if there is one. */
  close(response: HeldBytes): void {
    this.#cancel(response, new ClientGone());
    this.release(response.memory, response);
  }

  #cancel(response: HeldBytes, reason: Error): void {
    const index = this.#waiting.findIndex((waiting) => waiting.response === response);
    if (index === -1) return;
    const [waiting] = this.#waiting.splice(index, 1);
    waiting?.reject(reason);
    this.wakeNext();
  }

  #count(memory: number, response: HeldBytes): void {
    const { owner } = response;
    const ofOwner = (this.#usedBy.get(owner) ?? 0) + memory;
    this.#used += memory;
    if (ofOwner === 0) this.#usedBy.delete(owner);
    else this.#usedBy.set(owner, ofOwner);
    response.memory += memory;
    if (response.memory === 0) this.#holding.delete(response);
    else this.#holding.add(response);
  }

  // The first response of an owner may be larger than the owner's share.
  #fitsOwner(memory: number, owner: string): boolean {
    const used = this.#usedBy.get(owner) ?? 0;
    return used === 0 || used + memory <= this.#limitOfOwner;
  }

  #tooMuch(memory: number, { owner }: HeldBytes): ApiError {
    const headers = { ...RETRY_SOON, connection: 'close' };
    const remedy = 'that are being sent use too much memory; retry later; for a list, use a smaller `limit`';
    return this.#fitsOwner(memory, owner)
      ? new ApiError(50301, `responses ${remedy}`, headers)
      : new ShareExceeded(`responses of this owner ${remedy}`, headers);
  }

  /** Wakes responses in their order. Called whenever one of them may get memory. */
  wakeNext(): void {
    for (let index = this.#findNext(0); index !== -1; index = this.#findNext(index)) {
      for (const { memory, response, resolve } of this.#waiting.splice(index, 1)) {
        response.reserved += memory;
        this.#count(memory, response);
        resolve();
      }
    }
  }

  // Returns the index of the first response from `begin` on that gets its memory now, or -1. It may exceed the limit if all
  // that hold reserved memory are stopped: otherwise they, or a plant that is larger than the limit, would wait forever.
  #findNext(begin: number): number {
    if (begin >= this.#waiting.length) return -1;
    const holding = [...this.#holding];
    const waiting = new Set(this.#waiting.map(({ response }) => response));
    const notWaiting = holding.filter((response) => !waiting.has(response));
    // Other memory than reserved may never be released, while a client does not read.
    const moving = notWaiting.filter((response) => response.reserved > 0 && !response.isPaused);
    const ownersNotWaiting = new Set(notWaiting.map(({ owner }) => owner));
    const ownersMoving = new Set(moving.map(({ owner }) => owner));

    // True if a response must get memory above the share of its owner, since no other of the owner will release any. One
    // that has not begun and reserved nothing can be rejected instead, unless all that hold memory wait for more.
    const isOwnerStuck = (response: HeldBytes): boolean =>
      response.isBegun() || response.reserved > 0
        ? !ownersMoving.has(response.owner)
        : response.memory > 0 && !ownersNotWaiting.has(response.owner);

    for (const [offset, { memory, response }] of this.#waiting.slice(begin).entries()) {
      if (!this.#fitsOwner(memory, response.owner) && !isOwnerStuck(response)) continue;
      if (this.#used + memory <= this.#limit) return begin + offset;
      if (moving.length > 0) return -1;
      // Memory becomes free only when one that holds some goes on.
      if (response.reserved > 0 || holding.every(({ reserved }) => reserved === 0)) return begin + offset;
    }
    return -1;
  }
}

/** The share of the memory limit that one response holds. It is released when the response closes. */
export class HeldBytes {
  isClosed: boolean;
  readonly owner: string;
  /** All memory of this response. Only `SendBufferLimit` changes it, and `reserved`. */
  memory = 0;
  /** The part of the memory that was taken by `reserve`, which waits for memory. */
  reserved = 0;
  /** True while the response waits for something else, and releases no memory until it has it. */
  isPaused = false;
  readonly #response: BatchedResponse;
  readonly #limit: SendBufferLimit;

  constructor(response: BatchedResponse, owner: string, limit: SendBufferLimit) {
    this.owner = owner;
    this.#response = response;
    this.#limit = limit;
    this.isClosed = response.destroyed;
    response.once('close', () => {
      this.isClosed = true;
      limit.close(this);
    });
  }

  /** Returns true once the headers of the response were sent. */
  isBegun(): boolean {
    return this.#response.headersSent;
  }

  /**
   * Takes memory without waiting. Throws an ApiError (50301) if all responses together, or those of the
   * owner, have reached their limit.
   */
  take(bytes: number): void {
    if (!this.isClosed) this.#limit.take(bytes * MEMORY_PER_BYTE, this);
  }

  /**
   * Waits until memory for the bytes is free. Ignores the limit if no other response can release memory.
   * Rejects with an ApiError (50301) after a timeout, and with ClientGone once the connection is closed.
   */
  async reserve(bytes: number): Promise<void> {
    if (this.isClosed) throw new ClientGone();
    await this.#limit.reserve(bytes * MEMORY_PER_BYTE, this);
    if (this.isClosed) throw new ClientGone();
  }

  /** Runs `work` when `gate` allows it. Until then, this response releases no memory. */
  async waitFor<T>(gate: <R>(work: () => Promise<R>) => Promise<R>, work: () => Promise<T>): Promise<T> {
    this.isPaused = true;
    this.#limit.wakeNext();
    try {
      return await gate(() => {
        this.isPaused = false;
        return work();
      });
    } finally {
      this.isPaused = false;
    }
  }

  /** Releases the memory of bytes that were sent, or that are not needed after all. */
  release(bytes: number): void {
    if (!this.isClosed) this.#limit.release(bytes * MEMORY_PER_BYTE, this);
  }
}
