import type { InputHolder } from './connection-options.ts';

/**
 * Max counted bytes of input of all connections: pipelined requests, bodies that are not accepted yet, and
 * incomplete request lines, headers and trailers.
 */
export const MAX_UNPARSED_BYTES = 16 * 1024 * 1024;

const BITS = 32;

/** The inputs of the connections from one address. */
interface Share {
  bytes: number;
  /** In the order in which they began to wait. */
  readonly inputs: Set<InputHolder>;
}

/**
 * Limits the memory for input of all connections. A call takes constant time for each input that it counts or rejects,
 * however many there are.
 */
export class InputLimit {
  /** Counted bytes of each input. */
  readonly #inputs = new Map<InputHolder, number>();
  /**
   * Inputs that may wait for their clients, in the order in which they began to wait. Inputs that were found to wait for
   * the service are removed.
   */
  readonly #ofClients = new Set<InputHolder>();
  readonly #shares = new Map<string | undefined, Share>();
  /** Shares by the leading zero bits of their bytes: the first ones that are not empty have most, within a factor of two. */
  readonly #bySize = Array.from({ length: BITS + 1 }, () => new Set<Share>());
  /** Sum of `#inputs`. */
  #bytes = 0;

  /**
   * Sets the counted bytes of input of a connection. When they grow above the limit, rejects inputs, the oldest first: before
   * all others those of connections that wait for their clients, so that a client that sends a part of a request and then
   * nothing cannot take the memory from others; then those of the addresses with most bytes.
   */
  count(connection: InputHolder, bytes: number): void {
    const grows = bytes > (this.#inputs.get(connection) ?? 0);
    this.#set(connection, bytes);
    // A connection counts its input as 0 while it is rejected.
    if (grows) this.#rejectExcess();
  }

  #rejectExcess(): void {
    for (const oldest of this.#ofClients) {
      if (this.#bytes <= MAX_UNPARSED_BYTES) return;
      if (oldest.waitsForClient) this.#reject(oldest);
      else this.#ofClients.delete(oldest);
    }
    while (this.#bytes > MAX_UNPARSED_BYTES) {
      const [heaviest] = this.#bySize.find(({ size }) => size > 0) ?? [];
      const [oldest] = heaviest?.inputs ?? [];
      if (oldest === undefined) return;
      this.#reject(oldest);
    }
  }

  #reject(connection: InputHolder): void {
    this.#set(connection, 0);
    connection.rejectInput();
  }

  #set(connection: InputHolder, bytes: number): void {
    const before = this.#inputs.get(connection) ?? 0;
    if (bytes === before) return;
    const share = this.#shares.get(connection.address) ?? { bytes: 0, inputs: new Set() };
    this.#bySize[Math.clz32(share.bytes)]?.delete(share);
    this.#bytes += bytes - before;
    share.bytes += bytes - before;
    if (bytes === 0) {
      this.#inputs.delete(connection);
      this.#ofClients.delete(connection);
      share.inputs.delete(connection);
    } else {
      if (before === 0) this.#ofClients.add(connection);
      this.#inputs.set(connection, bytes);
      share.inputs.add(connection);
    }
    if (share.bytes === 0) this.#shares.delete(connection.address);
    else {
      this.#shares.set(connection.address, share);
      this.#bySize[Math.clz32(share.bytes)]?.add(share);
    }
  }
}
