import { EMPTY, PAGE_BYTES, type PlantPages, type Reservation } from './pagination.ts';

/** Size in bytes at which a list with a `limit` ends early, with a `Link` header to the rest. */
export const BUFFERED_LIST_BYTES = 8 * 2 ** 20;

/**
 * Collects a list with a `limit` from several store pages. Returns the bytes of the JSON array in parts.
 * `first` is the first page. The caller has reserved `expected` bytes in `held`, which the list is expected
 * to have; more are reserved as they are needed.
 */
export async function bufferList(
  pages: PlantPages,
  first: string,
  expected: number,
  held: Reservation,
): Promise<readonly Buffer[]> {
  const list = new ListParts(expected, held);
  for (let part: string | Buffer | undefined = first; part !== undefined; ) {
    const bytesAfter = Math.max(0, Math.min(BUFFERED_LIST_BYTES - list.bytes, pages.expectedBytes()));
    if (typeof part !== 'string') await list.addLarge(part);
    else if (part !== EMPTY) await list.addMembers(part, bytesAfter);
    // The closing bracket counts too.
    const left = BUFFERED_LIST_BYTES - ']'.length - list.bytes;
    part = left > 0 ? await pages.next(Math.min(PAGE_BYTES, left), held) : undefined;
  }
  return list.end();
}

/**
 * The parts of a JSON array. Pages are written into large blocks: a small buffer for each page would fragment
 * the heap, and the process would then not return the freed memory to the operating system. Each large plant
 * is a separate part.
 */
class ListParts {
  /** Number of bytes in all parts. */
  bytes = 0;
  readonly #parts: Buffer[] = [];
  readonly #held: Reservation;
  #block: Buffer;
  /** Start and end of the unfinished part in the block. */
  #begin = 0;
  #end = 0;

  /** Begins with a block whose bytes are reserved in `held`. */
  constructor(blockBytes: number, held: Reservation) {
    this.#held = held;
    this.#block = Buffer.allocUnsafeSlow(blockBytes);
  }

  /** Adds the members of a page that is not empty. `bytesAfter` is the expected size of the rest of the list. */
  async addMembers(json: string, bytesAfter: number): Promise<void> {
    const needed = Buffer.byteLength(json);
    if (needed > this.#room) await this.#beginBlock(needed + bytesAfter);
    this.#write(this.#separator());
    this.#write(json.slice(1, -1));
  }

  /** Adds a plant whose bytes are reserved. */
  async addLarge(plant: Buffer): Promise<void> {
    if (this.#room === 0) await this.#beginBlock(PAGE_BYTES);
    this.#write(this.#separator());
    this.#endPart();
    this.#parts.push(plant);
    this.bytes += plant.length;
  }

  /** Ends the array and returns its parts. Releases what is reserved for the unused end of the block. */
  async end(): Promise<readonly Buffer[]> {
    if (this.#room === 0) await this.#beginBlock(1);
    this.#write(this.bytes === 0 ? EMPTY : ']');
    this.#endPart();
    this.#held.release(this.#room);
    return this.#parts;
  }

  get #room(): number {
    return this.#block.length - this.#end;
  }

  #separator(): string {
    return this.bytes === 0 ? '[' : ',';
  }

  #write(text: string): void {
    const written = this.#block.write(text, this.#end);
    this.#end += written;
    this.bytes += written;
  }

  #endPart(): void {
    this.#parts.push(this.#block.subarray(this.#begin, this.#end));
    this.#begin = this.#end;
  }

  // The unused end of a block was never written, so the operating system has assigned no memory to it.
  async #beginBlock(bytes: number): Promise<void> {
    this.#endPart();
    this.#held.release(this.#room);
    const length = bytes + PAGE_BYTES;
    await this.#held.reserve(length);
    this.#block = Buffer.allocUnsafeSlow(length);
    this.#begin = 0;
    this.#end = 0;
  }
}
