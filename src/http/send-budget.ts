import { EventEmitter, once } from 'node:events';
import { Refusal } from '../errors.ts';
import { RETRY_SOON } from './refusals.ts';
import type { BatchedResponse } from './response.ts';

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
    if (this.#used + bytes > this.#limit)
      throw new Refusal(50301, 'too many bytes wait for slow clients; ask for shorter pages', {
        ...RETRY_SOON,
        connection: 'close',
      });
    this.#used += bytes;
  }

  // One is always let through, however large it is, so that every plant can be listed.
  async #reserveLarge(bytes: number, isGone: () => boolean): Promise<void> {
    while (this.#used + bytes > this.#limit && this.#usedByLarge > 0) {
      await once(this.#released, 'bytes');
      if (isGone()) break;
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
    this.#account.reserve(bytes);
    this.#bytes += bytes;
  }

  /** Waits until a page that is one large plant fits into the budget, or no other such page is held. */
  async addLarge(bytes: number): Promise<void> {
    if (this.#isClosed) return;
    await this.#account.reserveLarge(bytes, () => this.#isClosed);
    if (this.#isClosed) this.#account.release(bytes, bytes);
    else {
      this.#bytes += bytes;
      this.#large += bytes;
    }
  }

  /** Releases what the client has accepted. */
  remove(bytes: number): void {
    if (this.#isClosed) return;
    const large = Math.min(bytes, this.#large);
    this.#bytes -= bytes;
    this.#large -= large;
    this.#account.release(bytes, large);
  }
}
