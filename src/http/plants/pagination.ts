import type { IdRange, PageCut, Store } from '../../store/store.ts';
import type { HeldBytes } from '../send-buffer-limit.ts';

/** A page without plants. */
export const EMPTY = '[]';

/** Max bytes of JSON in one page from the store. `BUFFERED_LIST_BYTES` limits a page of the API, a list with `limit`. */
export const PAGE_BYTES = 64 * 1024;

/**
 * Target size in bytes of the next page. It is below PAGE_BYTES, since a page that exceeds PAGE_BYTES costs a
 * second SQL statement.
 */
const EXPECTED_BYTES = (PAGE_BYTES * 3) / 4;

/** Max plants in the first page of a list. The size of the plants is unknown before this page is read. */
export const FIRST_PAGE_PLANTS = 64;
/** Max plants in each later page. */
const MAX_PAGE_PLANTS = 1_024;
/**
 * Max plants in a page for each plant of the last page. After a few short plants, long ones may follow: the engine renders
 * a page that exceeds its bytes to its end.
 */
const MAX_GROWTH = 4;

/**
 * Runs `read` when the limits on concurrent reads allow it. Rejects if the list must end early, for example
 * after a token revocation.
 */
type LimitReads = <T>(read: () => Promise<T>) => Promise<T>;

/** Memory that is reserved before it is used. */
export type Reservation = Pick<HeldBytes, 'reserve' | 'release'>;

/**
 * Reads the pages of a list by key (keyset pagination). No transaction stays open between pages. A plant that
 * exists during the whole list is returned exactly once.
 */
export class PlantPages {
  ended: boolean;
  /** Size in bytes of the last page from `first` or `next`. */
  pageBytes = EMPTY.length;
  /** Id of the last plant read, if more plants follow. Otherwise undefined. */
  cutAt: bigint | undefined;
  readonly #store: Store;
  readonly #owner: string;
  readonly #limitReads: LimitReads;
  #range: IdRange;
  #left: number;
  #bytesPerPlant = 0;
  /** Max plants of the next page. */
  #plants = FIRST_PAGE_PLANTS;
  /** Size in bytes of the next plant, if it is too large for a page. */
  #largeBytes: number | undefined;

  /** Creates a reader. Each read except that of `first` goes through `limitReads`. */
  constructor(
    store: Store,
    owner: string,
    range: IdRange,
    limit = Number.POSITIVE_INFINITY,
    limitReads: LimitReads,
  ) {
    this.#store = store;
    this.#owner = owner;
    this.#limitReads = limitReads;
    this.#range = range;
    this.#left = limit;
    this.ended = limit === 0 || range.from > range.to;
  }

  /** Reads the first page, of up to `bytes` bytes of JSON. Resolves to `[]` if no plant fits, or if there is none. */
  first(bytes: number): Promise<string> {
    return this.ended ? Promise.resolve(EMPTY) : this.#readPage(bytes, (read) => read());
  }

  /**
   * Reads the next page, of up to `bytes` bytes of JSON, or the next plant as JSON in UTF-8, if it is larger. Reserves the bytes
   * of such a plant in `held`. Resolves to undefined after the end of the list.
   */
  async next(bytes: number, held: Reservation): Promise<string | Buffer | undefined> {
    while (!this.ended) {
      if (this.#largeBytes !== undefined) {
        const plant = await this.#readLarge(this.#largeBytes, held);
        if (plant !== undefined) return plant;
      } else {
        const json = await this.#readPage(bytes, this.#limitReads);
        if (json !== EMPTY) return json;
      }
    }
    return undefined;
  }

  async #readPage(bytes: number, limitReads: LimitReads): Promise<string> {
    const plants = Math.min(this.#left, this.#plants);
    const page = await limitReads(() => this.#store.listPlants(this.#owner, this.#range, { plants, bytes }));
    this.#largeBytes = page.largeBytes;
    this.pageBytes = page.bytes;
    if (page.largeBytes !== undefined) return page.json;
    if (page.cut !== undefined) this.#expect(page.cut.count);
    this.#moveOn(page.cut);
    return page.json;
  }

  /** Reads the plant of about `largeBytes` bytes. Resolves to undefined if it was deleted and none follows. */
  async #readLarge(largeBytes: number, held: Reservation): Promise<Buffer | undefined> {
    await held.reserve(largeBytes);
    const plant = await this.#limitReads(() => this.#store.readLargePlant(this.#owner, this.#range));
    this.#largeBytes = undefined;
    this.#moveOn(plant?.more === true ? { last: plant.id, count: 1 } : undefined);
    // The engine may have announced less, or another plant may have replaced this one meanwhile.
    const others = (plant?.json.length ?? 0) - largeBytes;
    if (others > 0) await held.reserve(others);
    else held.release(-others);
    return plant && Buffer.from(plant.json.buffer, plant.json.byteOffset, plant.json.length);
  }

  /** Estimates the size in bytes of all pages still to read, from the average plant of the previous page. */
  expectedBytes(): number {
    return this.ended ? 0 : Math.ceil(this.#left * this.#bytesPerPlant);
  }

  #moveOn(cut: PageCut | undefined): void {
    this.cutAt = cut?.last;
    this.ended = cut === undefined || this.#left === cut.count;
    if (cut === undefined) return;
    this.#left -= cut.count;
    this.#range = { from: cut.last + 1n, to: this.#range.to };
  }

  /** Sets what the next page is expected to have. `count` is the number of plants on the last one. */
  #expect(count: number): void {
    this.#bytesPerPlant = this.pageBytes / count;
    const fitting = Math.floor(EXPECTED_BYTES / this.#bytesPerPlant);
    this.#plants = Math.max(1, Math.min(MAX_PAGE_PLANTS, MAX_GROWTH * count, fitting));
  }
}
