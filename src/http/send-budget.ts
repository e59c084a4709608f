import { Refusal } from '../errors.ts';
import { RETRY_SOON } from './refusals.ts';

/**
 * The memory that long responses may hold together while their clients read: all instances of it are one account, in
 * bytes. Short responses need no reservation.
 */
export class SendBudget {
  readonly limit: number;
  #used = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  /** Reserves bytes. Throws a Refusal (50301) when the limit would be exceeded. */
  reserve(bytes: number): void {
    if (this.#used + bytes > this.limit)
      throw new Refusal(50301, 'too many bytes wait for slow clients; ask for shorter pages', {
        ...RETRY_SOON,
        connection: 'close',
      });
    this.#used += bytes;
  }

  release(bytes: number): void {
    this.#used -= bytes;
  }
}
