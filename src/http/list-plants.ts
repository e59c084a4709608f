import { Readable } from 'node:stream';
import { Type } from 'typebox';
import { INT64_MAX, INT64_MIN, Plant } from '../plant.ts';
import type { IdRange, PlantPage, Store } from '../store.ts';
import { decodeCursor, encodeCursor } from './cursor.ts';
import { asJson, type HandlerOf, type Operation, ownerOf } from './operation.ts';
import type { WaitForPageTurn } from './turns.ts';

const INT32_MAX = 2 ** 31 - 1;

/** How many plants are read from the store at once: at first, and at most, once their size is known. */
const FIRST_PAGE = 64;
const LONGEST_PAGE = 2_048;

/** The characters that a page should have, and those above which it is not kept for a client that may be slow. */
const PAGE_CHARACTERS = 128 * 1024;
const KEPT_CHARACTERS = 4 * PAGE_CHARACTERS;

/** How much of a list with a limit is gathered before its headers must leave. */
const GATHERED_CHARACTERS = 8 * 1024 * 1024;

const EMPTY = '[]';

const Cursor = Type.Refine(
  Type.String({
    description: 'Where the list goes on; from the `Link` header of the page before.',
    examples: ['AAAAAAAAABQcvOUA'],
  }),
  (cursor) => decodeCursor(cursor) !== undefined,
  () => 'must be one that a `Link` header of this service gave',
);

export const listPlantsOperation = {
  operationId: 'listPlants',
  method: 'GET',
  url: '/plants',
  summary: 'List plants',
  description:
    'Returns all plants that the caller has access to, in ascending order of their ids, or the first `limit` of them.',
  scope: 'plants:read',
  schema: {
    querystring: Type.Object({
      limit: Type.Optional(
        Type.Integer({
          format: 'int32',
          minimum: 0,
          maximum: INT32_MAX,
          description: 'The most plants to return; all of them when absent.',
          examples: [20],
        }),
      ),
      cursor: Type.Optional(Cursor),
    }),
  },
  success: {
    status: 200,
    description: 'The plants.',
    body: Type.Array(Plant, {
      examples: [[{ name: 'Alder', tag: 'Alnus' }, { name: 'Black alder' }]],
    }),
    headers: {
      Link: {
        description: 'Where the next page is, when `limit` cut the list (RFC 8288).',
        example: '</plants?limit=20&cursor=AAAAAAAAABQcvOUA>; rel="next"',
      },
    },
  },
  errors: [],
} as const satisfies Operation;

/**
 * GET /plants. `path` is the public path of the list, for links; `onSent` is called with the bytes handed to the
 * connection; each page but the first of a list waits for its turn.
 */
export function listPlants(
  store: Store,
  path: string,
  onSent: (bytes: number) => void,
  waitForPageTurn: WaitForPageTurn,
): HandlerOf<typeof listPlantsOperation> {
  return async (request, reply) => {
    const headOnly = request.method === 'HEAD';
    const { limit = Number.POSITIVE_INFINITY, cursor } = request.query;
    const list = new List(store, ownerOf(request), rangeBehind(cursor), limit, waitForPageTurn);
    const gathered = await gather(list, limit === Number.POSITIVE_INFINITY ? 0 : GATHERED_CHARACTERS);
    if (!list.ended) await list.fixEnd();
    const end = list.cutAt;
    if (end !== undefined)
      reply.header('link', `<${path}?limit=${limit}&cursor=${encodeCursor(end)}>; rel="next"`);
    if (list.ended) {
      const json = joined(gathered);
      if (!headOnly) onSent(Buffer.byteLength(json));
      return asJson(reply, json);
    }
    reply.header('content-type', 'application/json');
    return headOnly ? undefined : Readable.from(chunks(list, gathered, onSent), { objectMode: false });
  };
}

function rangeBehind(cursor: string | undefined): IdRange {
  const last = cursor === undefined ? undefined : decodeCursor(cursor);
  return { from: last === undefined ? INT64_MIN : last + 1n, to: INT64_MAX };
}

/**
 * A list on its way from the store, read by key a page at a time: no read transaction stays open between pages,
 * and each plant that exists throughout is met exactly once.
 */
class List {
  ended = false;
  /** The id of the last plant, when the limit cuts the list there. */
  cutAt: bigint | undefined;
  readonly #store: Store;
  readonly #owner: string;
  readonly #waitForPageTurn: WaitForPageTurn;
  #range: IdRange;
  #left: number;
  #page = FIRST_PAGE;
  #isBegun = false;
  #endIsFixed = false;

  constructor(store: Store, owner: string, range: IdRange, limit: number, waitForPageTurn: WaitForPageTurn) {
    this.#store = store;
    this.#owner = owner;
    this.#waitForPageTurn = waitForPageTurn;
    this.#range = range;
    this.#left = limit;
    this.ended = limit === 0 || range.from > range.to;
  }

  /** The next page, as JSON. One of more characters than `kept` is read again, with fewer plants. */
  async next(kept = KEPT_CHARACTERS): Promise<string> {
    if (this.#isBegun) await this.#waitForPageTurn();
    this.#isBegun = true;
    let page = await this.#read();
    if (page.json.length > kept && page.count > 1) page = await this.#read();
    this.#left -= page.count;
    this.#advance(page);
    return page.json;
  }

  async #read(): Promise<PlantPage> {
    const page = await this.#store.listPlants(this.#owner, this.#range, Math.min(this.#left, this.#page));
    const plants = Math.floor((PAGE_CHARACTERS * page.count) / page.json.length);
    this.#page = Math.max(1, Math.min(LONGEST_PAGE, plants));
    return page;
  }

  #advance({ more, last }: PlantPage): void {
    this.ended = !more || last === undefined || this.#left === 0;
    if (last === undefined || !more) return;
    if (this.#left > 0) this.#range = { from: last + 1n, to: this.#range.to };
    else if (!this.#endIsFixed) this.cutAt = last;
    else throw new Error('plants were added within a long page while it was sent; ask for shorter pages');
  }

  /**
   * Decides where the limit will cut, for a list whose headers must leave before its end is read.
   * From then on `next` rejects rather than cut the list elsewhere.
   */
  async fixEnd(): Promise<void> {
    if (this.#left === Number.POSITIVE_INFINITY) return;
    this.#endIsFixed = true;
    const end = await this.#store.findNthId(this.#owner, this.#range, this.#left);
    if (end === undefined || end === INT64_MAX) return;
    const rest = await this.#store.listPlants(this.#owner, { from: end + 1n, to: INT64_MAX }, 1);
    if (rest.count === 0) return;
    this.cutAt = end;
    this.#range = { from: this.#range.from, to: end };
  }
}

async function gather(list: List, characters: number): Promise<string[]> {
  const pages: string[] = [];
  let size = 0;
  while (!list.ended && size <= characters) {
    const page = await list.next(Math.max(characters, KEPT_CHARACTERS));
    if (page !== EMPTY) pages.push(page);
    size += page.length;
  }
  return pages;
}

/** One array of the members of all; of a single page that page itself, without a copy. */
function joined(pages: readonly string[]): string {
  const [only] = pages;
  return pages.length === 1 && only !== undefined ? only : `[${pages.map(membersOf).join(',')}]`;
}

function membersOf(page: string): string {
  return page.slice(1, -1);
}

async function* chunks(
  list: List,
  gathered: readonly string[],
  onSent: (bytes: number) => void,
): AsyncGenerator<Buffer> {
  const encoded = (text: string): Buffer => {
    const bytes = Buffer.from(text);
    onSent(bytes.length);
    return bytes;
  };
  yield encoded(`[${gathered.map(membersOf).join(',')}`);
  while (!list.ended) {
    const page = await list.next();
    if (page !== EMPTY) yield encoded(`,${membersOf(page)}`);
  }
  yield encoded(']');
}
