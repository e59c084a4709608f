import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { INT64_MAX, INT64_MIN, Plant } from '../plant.ts';
import type { IdRange, Store } from '../store.ts';
import { decodeCursor, encodeCursor } from './cursor.ts';
import { asJson, type HandlerOf, type Operation, ownerOf } from './operation.ts';
import { PAGE_BYTES, PlantPages } from './plant-pages.ts';
import type { WaitForPageTurn } from './turns.ts';

const INT32_MAX = 2 ** 31 - 1;

/** A list with a limit ends at this size, with a Link, though more plants follow. */
const GATHERED_BYTES = 8 * 1024 * 1024;

/** Bytes written to a response at once. */
const PIECE_BYTES = 64 * 1024;

const EMPTY = '[]';
const END = Buffer.from(']');

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
    'Returns all plants that the caller has access to, in ascending order of their ids, or the first `limit` of them. ' +
    'A page that reaches 8 MiB ends before its `limit`, with a `Link` to the rest.',
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
        description: 'Where the next page is, when more plants follow a list with a `limit` (RFC 8288).',
        example: '</plants?limit=20&cursor=AAAAAAAAABQcvOUA>; rel="next"',
      },
    },
  },
  errors: [],
} as const satisfies Operation;

/** Memory that lists hold while their clients read: a list with a limit, and a plant larger than a page. */
interface ListBudget {
  /** Throws an error response (50301) when the limit of all lists together is reached. */
  reserve(bytes: number): void;
  release(bytes: number): void;
}

interface ListGuards {
  readonly budget: ListBudget;
  /** Called before each page but the first of a list; rejects to end the list there. */
  readonly checkpoint: (request: FastifyRequest) => Promise<void>;
}

const UNGUARDED: ListGuards = {
  budget: { reserve: () => undefined, release: () => undefined },
  checkpoint: () => Promise.resolve(),
};

/**
 * GET /plants. `path` is the public path of the list, for links; `onSent` is called with the bytes handed to the
 * connection; each page but the first of a list waits for its turn.
 */
export function listPlants(
  store: Store,
  path: string,
  onSent: (bytes: number) => void,
  waitForPageTurn: WaitForPageTurn,
  { budget, checkpoint }: ListGuards = UNGUARDED,
): HandlerOf<typeof listPlantsOperation> {
  async function* streamed(pages: PlantPages, first: Buffer, held: HeldBytes): AsyncGenerator<Buffer> {
    for (let page: Buffer | undefined = first; page !== undefined; page = await nextOf(pages, PAGE_BYTES)) {
      const excess = Math.max(0, page.length - PAGE_BYTES);
      held.add(excess);
      yield* inPieces([page]);
      held.remove(excess);
    }
    if (pages.ended) yield* inPieces([END]);
  }

  function* inPieces(pages: Buffer[]): Generator<Buffer> {
    for (let page = pages.shift(); page !== undefined; page = pages.shift()) {
      for (let from = 0; from < page.length; from += PIECE_BYTES) {
        const piece = page.subarray(from, from + PIECE_BYTES);
        onSent(piece.length);
        yield piece;
      }
    }
  }

  return async (request, reply) => {
    const { limit, cursor } = request.query;
    if (request.method === 'HEAD') {
      reply.header('content-type', 'application/json');
      return undefined;
    }
    const pages = new PlantPages(store, ownerOf(request), rangeAfter(cursor), limit, {
      isGone: () => reply.raw.destroyed || request.raw.socket.destroyed,
      beforeNext: async () => {
        await waitForPageTurn();
        await checkpoint(request);
      },
    });
    const first = (await pages.next(PAGE_BYTES)) ?? EMPTY;
    const isWhole = pages.ended && first.length <= PAGE_BYTES;
    const held = isWhole ? undefined : new HeldBytes(budget, reply.raw);
    const gathered = limit === undefined || held === undefined ? [] : await gather(pages, first, held);
    if (limit !== undefined && pages.cutAt !== undefined)
      reply.header('link', `<${path}?limit=${limit}&cursor=${encodeCursor(pages.cutAt)}>; rel="next"`);
    if (held === undefined) {
      onSent(Buffer.byteLength(first));
      return asJson(reply, first);
    }
    reply.header('content-type', 'application/json');
    if (limit === undefined) return readable(streamed(pages, opened(first), held));
    reply.header('content-length', held.bytes);
    return readable(inPieces(gathered));
  };
}

/** Gathers the pages of a list with a limit; they are incomplete only when the client has closed the connection. */
async function gather(pages: PlantPages, first: string, held: HeldBytes): Promise<Buffer[]> {
  const gathered: Buffer[] = [];
  let page: Buffer | undefined = opened(first);
  while (page !== undefined) {
    held.add(page.length);
    gathered.push(page);
    const left = GATHERED_BYTES - held.bytes;
    page = left > 0 ? await nextOf(pages, Math.min(PAGE_BYTES, left)) : undefined;
  }
  held.add(END.length);
  return [...gathered, END];
}

/** The next page with plants, as the continuation of an array; undefined at the end, or when the client is gone. */
async function nextOf(pages: PlantPages, bytes: number): Promise<Buffer | undefined> {
  let json: string | undefined = EMPTY;
  while (json === EMPTY && !pages.ended) json = await pages.next(bytes);
  if (json === undefined || json === EMPTY) return undefined;
  const page = opened(json);
  page.write(',');
  return page;
}

/** The bytes of an array without its end. */
function opened(json: string): Buffer {
  return Buffer.from(json).subarray(0, -1);
}

function readable(pieces: Iterable<Buffer> | AsyncIterable<Buffer>): Readable {
  return Readable.from(pieces, { objectMode: false, highWaterMark: PIECE_BYTES });
}

/** The bytes that one response holds of the budget, until it is closed. */
class HeldBytes {
  bytes = 0;
  readonly #budget: ListBudget;
  #isClosed: boolean;

  constructor(budget: ListBudget, response: ServerResponse) {
    this.#budget = budget;
    this.#isClosed = response.destroyed;
    response.once('close', () => {
      this.#isClosed = true;
      budget.release(this.bytes);
    });
  }

  add(bytes: number): void {
    if (!this.#isClosed) this.#budget.reserve(bytes);
    this.bytes += bytes;
  }

  remove(bytes: number): void {
    this.bytes -= bytes;
    if (!this.#isClosed) this.#budget.release(bytes);
  }
}

function rangeAfter(cursor: string | undefined): IdRange {
  const last = cursor === undefined ? undefined : decodeCursor(cursor);
  return { from: last === undefined ? INT64_MIN : last + 1n, to: INT64_MAX };
}
