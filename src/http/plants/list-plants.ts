import type { FastifyReply, FastifyRequest } from 'fastify';
import { INT64_MAX, INT64_MIN, Plant } from '../../plant.ts';
import { Type } from '../../schema.ts';
import type { IdRange, Store } from '../../store/store.ts';
import { type BatchedResponse, responseOf } from '../batched-response.ts';
import { ClientGone } from '../error-response.ts';
import { type HandlerOf, type Operation, ownerOf } from '../operation.ts';
import { asJson } from '../response-head.ts';
import type { HeldBytes, SendBufferLimit } from '../send-buffer-limit.ts';
import { inPieces, PIECE_BYTES, sendPieces } from '../streamed-response.ts';
import { createTaskLimit } from '../task-limit.ts';
import { BUFFERED_LIST_BYTES, bufferList } from './buffered-list.ts';
import { decodeCursor, encodeCursor } from './cursor.ts';
import { createPageSlots } from './page-slots.ts';
import { EMPTY, PAGE_BYTES, PlantPages } from './pagination.ts';

const INT32_MAX = 2 ** 31 - 1;

const MEBIBYTE = 2 ** 20;

/**
 * Max concurrent lists with a `limit` that are buffered. With more of them, each would take longer and
 * hold its memory for longer.
 */
export const CONCURRENT_BUFFERED_LISTS = 4;

/**
 * Max concurrent reads of pages by all lists together, except first pages. On PostgreSQL, the remaining
 * connections to the database stay free for short requests.
 */
const CONCURRENT_READS = 4;

/**
 * Estimated size in bytes of the buffered data of each list without `limit`. The size counts towards the
 * memory limit for slow clients. It includes a few pages of plants, both unencrypted and encrypted for TLS.
 * It excludes the socket buffer of the kernel.
 */
export const STREAM_BYTES = 8 * PAGE_BYTES;

/**
 * A first page of up to this many bytes that ends its list is sent in one write, and does not count towards the memory
 * limit.
 */
const SHORT_BYTES = PAGE_BYTES;

/**
 * Milliseconds between token checks of a running list. A revocation takes effect within this interval plus
 * `TOKEN_FRESH_MS`, or `CONFIRMED_MS` if lookups fail (authentication.ts). The sums must be below a second, as
 * docs/operations.md promises.
 */
export const RECHECK_MS = 150;

const OPENING_BRACKET = 91;
const COMMA = 44;
const END = Buffer.from(']');

const encoder = new TextEncoder();

const Cursor = Type.Refine(
  Type.String({
    pattern: '^[A-Za-z0-9_-]+$',
    description: 'Where the list continues: the `cursor` in the `Link` header of the previous page.',
  }),
  (cursor) => decodeCursor(cursor) !== undefined,
  () => 'must be a cursor from a `Link` header of this service',
);

export const listPlantsOperation = {
  operationId: 'listPlants',
  method: 'GET',
  url: '/plants',
  summary: 'List plants',
  description:
    'Returns all plants that the caller has access to, in ascending order of their ids, or the first `limit` of them. ' +
    `A page that reaches ${BUFFERED_LIST_BYTES / MEBIBYTE} MiB ends before its \`limit\`, with a \`Link\` to the rest. ` +
    'A plant that exists during the whole listing is in it exactly once; one that is created or deleted meanwhile may be ' +
    'missing. Responses have no ids: keep those that you choose. HEAD reads no plants: its response may lack headers of GET.',
  scope: 'plants:read',
  schema: {
    querystring: Type.Object({
      limit: Type.Optional(
        Type.Integer({
          format: 'int32',
          minimum: 0,
          maximum: INT32_MAX,
          description: 'The maximum number of plants to return; all when absent, none if 0.',
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
      Link: Type.String({
        description:
          'The next page, when more plants follow a list with a `limit` (RFC 8288): ' +
          `\`</plants?limit=20&cursor=${encodeCursor(20n)}>; rel="next"\`, with the base path of the service, if it has one.`,
      }),
    },
  },
  errors: [],
} as const satisfies Operation;

interface ListGuards {
  readonly sendBufferLimit: SendBufferLimit;
  /** Rejects if the token of the request is no longer valid, or cannot be checked. */
  readonly recheck: (request: FastifyRequest) => Promise<void>;
}

/**
 * Handles GET /plants. `path` is the public path of the list, for links. `onSent` gets the number of bytes of
 * each write. A list of several pages ends early if the client is gone or its token is revoked or
 * cannot be checked.
 */
export function listPlants(
  store: Store,
  path: string,
  onSent: (bytes: number) => void,
  { sendBufferLimit, recheck }: ListGuards,
): HandlerOf<typeof listPlantsOperation> {
  const bufferLimited = createTaskLimit(CONCURRENT_BUFFERED_LISTS);
  const readLimited = createTaskLimit(CONCURRENT_READS);
  const waitForPageSlot = createPageSlots();

  // Yields the JSON of a streamed list in pieces. All pages share one buffer, to save memory. `first` is an array, so
  // that this generator does not keep the text of the first page while its client is slow.
  async function* streamed(
    pages: PlantPages,
    first: (string | Buffer)[],
    held: HeldBytes,
  ): AsyncGenerator<Buffer> {
    const shared = Buffer.allocUnsafeSlow(PIECE_BYTES);
    let begin = OPENING_BRACKET;
    for (let part = first.pop(); part !== undefined; part = await pages.next(PAGE_BYTES, held)) {
      if (part === EMPTY) continue;
      if (typeof part === 'string') yield* counted(encodeMembers(part, begin, shared));
      else {
        const { length } = part;
        yield* counted([Buffer.of(begin)]);
        yield* sendAndFree([part]);
        held.release(length);
      }
      begin = COMMA;
    }
    yield* counted(begin === COMMA ? [END] : [Buffer.from(EMPTY)]);
    free(shared);
  }

  // Yields pieces of the parts, and frees their memory after the last one was sent. Several parts may share it.
  function* sendAndFree(parts: readonly Buffer[]): Generator<Buffer> {
    for (const part of parts) yield* counted(inPieces(part));
    for (const part of parts) free(part);
  }

  function* counted(pieces: Iterable<Buffer>): Generator<Buffer> {
    for (const piece of pieces) {
      onSent(piece.length);
      yield piece;
    }
  }

  return async (request, reply) => {
    const { limit, cursor } = request.query;
    if (request.method === 'HEAD') {
      reply.header('content-type', 'application/json');
      return undefined;
    }
    const response = responseOf(reply);
    if (response.destroyed) throw new ClientGone();
    const owner = ownerOf(request);
    const pages = new PlantPages(store, owner, rangeAfter(cursor), limit, (read) =>
      readLimited(async () => {
        await waitForPageSlot();
        // Reads no further page if the client closed its sending side: such a client is nearly always gone.
        if (response.destroyed || response.isHalfClosed) throw new ClientGone();
        await recheck(request);
        return read();
      }),
    );
    const first = await pages.first(SHORT_BYTES);
    // The client may have gone meanwhile. Then no memory is reserved, and nothing more is read.
    if (response.destroyed) throw new ClientGone();
    if (pages.ended && pages.pageBytes <= SHORT_BYTES) {
      addLink(reply, path, limit, pages.cutAt);
      onSent(pages.pageBytes);
      return asJson(reply, first);
    }
    const held = sendBufferLimit.open(response, owner);
    reply.header('content-type', 'application/json');
    if (limit === undefined) {
      held.take(STREAM_BYTES);
      await sendPieces(reply, streamed(pages, [first], held));
    } else {
      const expected = Math.min(BUFFERED_LIST_BYTES, pages.pageBytes + pages.expectedBytes()) + PAGE_BYTES;
      await held.reserve(expected);
      const buffered = await held.waitFor(bufferLimited, () => bufferList(pages, first, expected, held));
      addLink(reply, path, limit, pages.cutAt);
      reply.header(
        'content-length',
        buffered.reduce((sum, { length }) => sum + length, 0),
      );
      await sendPieces(reply, sendAndFree(buffered));
    }
    recheckWhileSent(response, () => recheck(request));
    return undefined;
  };
}

// Frees memory immediately. Otherwise the parts of many lists would stay in memory until the next garbage
// collection.
function free({ buffer }: Buffer): void {
  if (buffer instanceof ArrayBuffer && !buffer.detached) buffer.transfer(0);
}

function addLink(
  reply: FastifyReply,
  path: string,
  limit: number | undefined,
  cutAt: bigint | undefined,
): void {
  if (limit === undefined || cutAt === undefined) return;
  reply.header('link', `<${path}?limit=${limit}&cursor=${encodeCursor(cutAt)}>; rel="next"`);
}

/** Calls `recheck` until the response is sent, even while the client does not read. Breaks the response off if it rejects. */
function recheckWhileSent(response: BatchedResponse, recheck: () => Promise<void>): void {
  if (response.destroyed) return;
  const check = () => recheck().catch((error: unknown) => response.breakOff(error));
  const timer = setInterval(() => void check(), RECHECK_MS);
  response.once('close', () => clearInterval(timer));
}

/**
 * Encodes one page of a list as a part of a JSON array, without the closing bracket. The part starts with the
 * byte `begin`: `[` on the first page, `,` on later pages. Yields pieces in one shared buffer: each piece
 * overwrites the previous piece.
 */
function* encodeMembers(json: string, begin: number, shared: Buffer): Generator<Buffer> {
  const end = json.length - END.length;
  for (let from = 0; from < end; ) {
    // A slice may end inside a surrogate pair. It has as many characters as `shared` has bytes, so that half a pair at
    // its end, of 3 bytes, never fits, and the next slice begins with the whole pair.
    const slice = json.slice(from, Math.min(from + PIECE_BYTES, end));
    const { read, written } = encoder.encodeInto(slice, shared);
    if (from === 0) shared[0] = begin;
    from += read;
    yield shared.subarray(0, written);
  }
}

function rangeAfter(cursor: string | undefined): IdRange {
  const last = cursor === undefined ? undefined : decodeCursor(cursor);
  return { from: last === undefined ? INT64_MIN : last + 1n, to: INT64_MAX };
}
