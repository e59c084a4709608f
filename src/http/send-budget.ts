import { EventEmitter, once } from 'node:events';
import { Refusal } from '../errors.ts';
import { RETRY_SOON } from './refusals.ts';
import type { BatchedResponse } from './response.ts';

/** How long a page that is one large plant may wait for room. */
const LARGE_WAIT_MS = 5_000;

/** What a byte of a response takes of memory, with what its making leaves for the garbage collector (measured). */
const MEMORY_PER_BYTE = 2;

/** The memory, in bytes, that long responses may hold together while their clients read. Short ones need no reservation. */
export class SendBudget {
  readonly #limit: number;
  readonly #released = new EventEmitter().setMaxListeners(0);
  #used = 0;
  /** Bytes of plants that are larger than a page. */
  #usedByLarge = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Opens the account of one response; what it holds is released when it closes. */
  open(response: BatchedResponse): HeldBytes {
    return new HeldBytes(response, {
      reserve: (bytes) => this.#reserve(bytes),
      reserveLarge: (bytes, isGone) => this.#reserveLarge(bytes, isGone),
      release: (bytes, large) => this.#release(bytes, large),
    });
  }

  #reserve(bytes: number): void {
    if (this.#used + bytes > this.#limit) throw tooMuch();
    this.#used += bytes;
  }

  // One is always let through, however large it is, so that every plant can be listed.
  async #reserveLarge(bytes: number, isGone: () => boolean): Promise<void> {
    const deadline = AbortSignal.timeout(LARGE_WAIT_MS);
    while (this.#used + bytes > this.#limit && this.#usedByLarge > 0 && !isGone()) {
      await once(this.#released, 'bytes', { signal: deadline }).catch(() => {
        throw tooMuch();
      });
    }
    this.#used += bytes;
    this.#usedByLarge += bytes;
  }

  #release(bytes: number, large: number): void {
    this.#used -= bytes;
    this.#usedByLarge -= large;
    this.#released.emit('bytes');
  }
}

function tooMuch(): Refusal {
  return new Refusal(50301, 'too many bytes wait for slow clients; ask for shorter pages', {
    ...RETRY_SOON,
    connection: 'close',
  });
}

interface Account {
  reserve(bytes: number): void;
  reserveLarge(bytes: number, isGone: () => boolean): Promise<void>;
  release(bytes: number, large: number): void;
}

/** The bytes that one response holds of the budget, until it is closed. */
export class HeldBytes {
  #bytes = 0;
  #large = 0;
  #isClosed: boolean;
  readonly #account: Account;

  constructor(response: BatchedResponse, account: Account) {
    this.#account = account;
    this.#isClosed = response.destroyed;
    response.once('close', () => {
      this.#isClosed = true;
      account.release(this.#bytes, this.#large);
    });
  }

  /** Throws a Refusal (50301) when the limit of all responses together is reached. */
  add(bytes: number): void {
    if (this.#isClosed) return;
    const memory = bytes * MEMORY_PER_BYTE;
    this.#account.reserve(memory);
    this.#bytes += memory;
  }

  /** Waits until a page that is one large plant fits, or no other such page is held. Rejects with a Refusal (50301). */
  async addLarge(bytes: number): Promise<void> {
    if (this.#isClosed) return;
    const memory = bytes * MEMORY_PER_BYTE;
    await this.#account.reserveLarge(memory, () => this.#isClosed);
    if (this.#isClosed) this.#account.release(memory, memory);
    else {
      this.#bytes += memory;
      this.#large += memory;
    }
  }

  /** Releases what the client has accepted. */
  remove(bytes: number): void {
    if (this.#isClosed) return;
    const memory = bytes * MEMORY_PER_BYTE;
    const large = Math.min(memory, this.#large);
    this.#bytes -= memory;
    this.#large -= large;
    this.#account.release(memory, large);
  }
}
