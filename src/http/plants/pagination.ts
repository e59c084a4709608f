import type { IdRange, PlantPage, Store } from '../../store/store.ts';

/** Bytes of JSON that are read from the store at once. */
export const PAGE_BYTES = 64 * 1024;

/** What the next page should have: below the limit, so that most pages reach it in one statement. */
const EXPECTED_BYTES = (PAGE_BYTES * 3) / 4;

/** Plants that are read at once: at first, and once their size is known. */
const FIRST_PAGE = 64;
const LONGEST_PAGE = 2_048;

/**
 * The pages of a list, read by key: no read transaction stays open between pages, and each plant that exists
 * throughout is met exactly once.
 */
export class PlantPages {
  /** Whether the last page was read. */
  ended: boolean;
  /** The id of the last plant read, while more follow. */
  cutAt: bigint | undefined;
  readonly #store: Store;
  readonly #owner: string;
  readonly #beforeNext: () => Promise<void>;
  #range: IdRange;
  #left: number;
  #plants = FIRST_PAGE;
  #bytesPerPlant = 0;
  #isBegun = false;

  /** `beforeNext` is called before each page but the first; it rejects to end the list there. */
  constructor(
    store: Store,
    owner: string,
    range: IdRange,
    limit = Number.POSITIVE_INFINITY,
    beforeNext: () => Promise<void>,
  ) {
    this.#store = store;
    this.#owner = owner;
    this.#beforeNext = beforeNext;
    this.#range = range;
    this.#left = limit;
    this.ended = limit === 0 || range.from > range.to;
  }

  /** The next page as JSON, limited to `bytes` or one plant; undefined at the end. */
  async next(bytes: number): Promise<string | undefined> {
    if (this.#isBegun) await this.#beforeNext();
    this.#isBegun = true;
    if (this.ended) return undefined;
    const plants = Math.min(this.#left, this.#plants);
    const page = await this.#store.listPlants(this.#owner, this.#range, { plants, bytes });
    this.#advance(page);
    return page.json;
  }

  /** The bytes of the pages to come, if the plants are as long as those of the last page. */
  expectedBytes(): number {
    return this.ended ? 0 : Math.ceil(this.#left * this.#bytesPerPlant);
  }

  #advance({ json, count, last, more }: PlantPage): void {
    this.#bytesPerPlant = json.length / Math.max(1, count);
    this.#plants = Math.max(1, Math.min(LONGEST_PAGE, Math.floor(EXPECTED_BYTES / this.#bytesPerPlant)));
    this.#left -= count;
    this.cutAt = more ? last : undefined;
    this.ended = this.cutAt === undefined || this.#left === 0;
    if (last !== undefined && more) this.#range = { from: last + 1n, to: this.#range.to };
  }
}
