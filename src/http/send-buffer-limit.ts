import { ApiError } from '../api-errors.ts';
import type { BatchedResponse } from './batched-response.ts';
import { RETRY_SOON } from './error-response.ts';
import { ClientGone } from './operation.ts';

/** Max milliseconds that a response waits for memory before it fails with 50301. */
const WAIT_MS = 5_000;

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

/** Memory of one owner. `reserved` is the part that was taken by `reserve`. */
interface Use {
  readonly used: number;
  readonly reserved: number;
}

const NONE: Use = { used: 0, reserved: 0 };

/** Memory of the responses of one owner that are stopped: they wait for memory, or are paused. */
interface Stopped {
  readonly reserved: number;
  /** All memory of the responses that wait for memory. */
  readonly waiting: number;
}

const NONE_STOPPED: Stopped = { reserved: 0, waiting: 0 };

/**
 * Limits the total memory of the long responses that clients are still reading, and the share of each owner.
 * Does not count short responses.
 */
export class SendBufferLimit {
  readonly #limit: number;
  readonly #limitOfOwner: number;
  readonly #byOwner = new Map<string, Use>();
  /** Responses that wait for memory. The first has waited longest. */
  readonly #waiting: Waiting[] = [];
  /** Responses that wait for something else, and release no memory until they have it. */
  readonly #paused = new Set<HeldBytes>();
  #used = 0;
  /**
   * The part of `#used` that was taken by `reserve`, which waits for memory. The rest was taken by `take`,
   * which fails instead of waiting.
   */
  #reserved = 0;

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
  take(memory: number, owner: string): void {
    if (this.#used + memory > this.#limit || !this.#fitsOwner(memory, owner)) throw tooMuch();
    this.#count(memory, 0, owner);
  }

  /**
   * Waits until the memory is free. If all responses that hold reserved memory wait for more, the first
   * waiting response gets its memory immediately. This prevents a deadlock. The same holds for the responses
   * of one owner. Rejects with an ApiError (50301) after a timeout.
   */
  async reserve(memory: number, response: HeldBytes): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.push({ response, memory, resolve, reject });
    this.#wakeNext();
    const waitMs = response.isBegun() ? BEGUN_WAIT_MS : WAIT_MS;
    const timer = setTimeout(() => this.cancel(response, tooMuch()), waitMs);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Counts a response as one that waits, until `resume`: memory that only such responses hold is not released. */
  pause(response: HeldBytes): void {
    this.#paused.add(response);
    this.#wakeNext();
  }

  resume(response: HeldBytes): void {
    this.#paused.delete(response);
  }

  /** Rejects the pending reservation of a response, if there is one. */
  cancel(response: HeldBytes, reason: Error): void {
    const index = this.#waiting.findIndex((waiting) => waiting.response === response);
    if (index === -1) return;
    const [waiting] = this.#waiting.splice(index, 1);
    waiting?.reject(reason);
    this.#wakeNext();
  }

  release(memory: number, reserved: number, owner: string): void {
    this.#count(-memory, -reserved, owner);
    this.#wakeNext();
  }

  #count(memory: number, reserved: number, owner: string): void {
    this.#used += memory;
    this.#reserved += reserved;
    const before = this.#byOwner.get(owner) ?? NONE;
    const after = { used: before.used + memory, reserved: before.reserved + reserved };
    if (after.used === 0) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, after);
  }

  // The first response of an owner may be larger than the owner's share.
  #fitsOwner(memory: number, owner: string): boolean {
    const { used } = this.#byOwner.get(owner) ?? NONE;
    return used === 0 || used + memory <= this.#limitOfOwner;
  }

  // Wakes responses in their order.
  #wakeNext(): void {
    for (let index = this.#findNext(0); index !== -1; index = this.#findNext(index)) {
      for (const { memory, response, resolve } of this.#waiting.splice(index, 1)) {
        this.#count(memory, memory, response.owner);
        response.grant(memory);
        resolve();
      }
    }
  }

  // Returns the index of the first response from `begin` on that gets its memory now, or -1. Those of an owner
  // above its share let others pass. If every response that holds reserved memory is stopped, the first of them may
  // exceed the limit, to prevent a deadlock. This also makes it possible to list a plant that is larger than the
  // limit.
  #findNext(begin: number): number {
    if (begin >= this.#waiting.length) return -1;
    const stopped = this.#sumStopped();
    const ofStopped = [...stopped.values()].reduce((sum, { reserved }) => sum + reserved, 0);
    for (const [offset, { memory, response }] of this.#waiting.slice(begin).entries()) {
      const fitsOwner = this.#fitsOwner(memory, response.owner);
      if (!fitsOwner && !this.#isOwnerStuck(response, stopped.get(response.owner) ?? NONE_STOPPED)) continue;
      if (this.#used + memory <= this.#limit) return begin + offset;
      if (this.#reserved !== ofStopped) return -1;
      // Memory becomes free only when one that holds some goes on.
      if (response.reserved > 0 || this.#reserved === 0) return begin + offset;
    }
    return -1;
  }

  // Returns true if this response must get memory above the share of its owner, since no other of the owner will
  // release any. One that has begun, or holds reserved memory, is stuck if all reserved memory belongs to stopped
  // responses. Another one can be rejected instead, unless responses that wait for memory hold all of it.
  #isOwnerStuck(response: HeldBytes, stopped: Stopped): boolean {
    const { used, reserved } = this.#byOwner.get(response.owner) ?? NONE;
    if (response.isBegun() || response.reserved > 0) return reserved === stopped.reserved;
    return response.memory > 0 && used === stopped.waiting;
  }

  #sumStopped(): ReadonlyMap<string, Stopped> {
    const byOwner = new Map<string, Stopped>();
    const add = ({ owner, reserved }: HeldBytes, waiting: number): void => {
      const sum = byOwner.get(owner) ?? NONE_STOPPED;
      byOwner.set(owner, { reserved: sum.reserved + reserved, waiting: sum.waiting + waiting });
    };
    for (const response of this.#paused) add(response, 0);
    for (const { response } of this.#waiting) add(response, response.memory);
    return byOwner;
  }
}

function tooMuch(): ApiError {
  return new ApiError(
    50301,
    'responses to slow clients use too much memory; retry later, or use a smaller `limit`',
    {
      ...RETRY_SOON,
      connection: 'close',
    },
  );
}

/** The share of the memory limit that one response holds. It is released when the response closes. */
export class HeldBytes {
  isClosed: boolean;
  /** The part of this response's memory that was taken by `reserve`, which waits for memory. */
  reserved = 0;
  readonly owner: string;
  /** All memory of this response. */
  memory = 0;
  readonly #response: BatchedResponse;
  readonly #limit: SendBufferLimit;

  constructor(response: BatchedResponse, owner: string, limit: SendBufferLimit) {
    this.owner = owner;
    this.#response = response;
    this.#limit = limit;
    this.isClosed = response.destroyed;
    response.once('close', () => {
      this.isClosed = true;
      limit.cancel(this, new ClientGone());
      limit.resume(this);
      limit.release(this.memory, this.reserved, owner);
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
    if (this.isClosed) return;
    const memory = bytes * MEMORY_PER_BYTE;
    this.#limit.take(memory, this.owner);
    this.memory += memory;
  }

  /**
   * Waits until memory for the bytes is free. Ignores the limit if no other response can release memory.
   * Rejects with an ApiError (50301) after a timeout, and with ClientGone once the connection is closed.
   */
  async reserve(bytes: number): Promise<void> {
    if (this.isClosed) throw new ClientGone();
    const memory = bytes * MEMORY_PER_BYTE;
    await this.#limit.reserve(memory, this);
    if (this.isClosed) throw new ClientGone();
  }

  /** Runs `work` when `gate` allows it. Until then, this response releases no memory. */
  async waitFor<T>(gate: <R>(work: () => Promise<R>) => Promise<R>, work: () => Promise<T>): Promise<T> {
    this.#limit.pause(this);
    try {
      return await gate(() => {
        this.#limit.resume(this);
        return work();
      });
    } finally {
      this.#limit.resume(this);
    }
  }

  /** Adds memory that `SendBufferLimit` has granted to this response. */
  grant(memory: number): void {
    this.memory += memory;
    this.reserved += memory;
  }

  /** Releases the memory of bytes that were sent, or that are not needed after all. */
  release(bytes: number): void {
    if (this.isClosed) return;
    const memory = bytes * MEMORY_PER_BYTE;
    const reserved = Math.min(memory, this.reserved);
    this.memory -= memory;
    this.reserved -= reserved;
    this.#limit.release(memory, reserved, this.owner);
  }
}
