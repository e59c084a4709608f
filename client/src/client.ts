import { ErrorCode } from './error-codes.ts';
import { nextTarget } from './link-header.ts';
import {
  type CallOptions,
  type ClientOptions,
  checkedCursor,
  checkedInteger,
  checkedKey,
  collectionAt,
  DEFAULT_MAX_BODY_BYTES,
  DEFAULT_PAGE_SIZE,
} from './options.ts';
import { digitsOf, isPlant, jsonOfPlant, type NewPlant, type Plant } from './plant-json.ts';
import { type ReceivedResponse, type ResponseInfo, SHORT_BODY_BYTES, serviceErrorIn } from './response.ts';
import { createSender } from './send.ts';

export { ErrorCode } from './error-codes.ts';
export type {
  Attempt,
  AttemptEnd,
  AttemptStart,
  CallOptions,
  ClientOptions,
  Fetch,
  FetchRequest,
  GiveToken,
  HeaderOptions,
} from './options.ts';
export type { NewPlant, Plant } from './plant-json.ts';
export { PlantStoreError } from './plant-store-error.ts';
export type { FetchResponse, ResponseInfo } from './response.ts';

/** Options of a creation. */
export interface CreateOptions extends CallOptions {
  /**
   * 1 to 255 visible ASCII characters. Within 24 hours, a second creation with the same key has no effect. Default: a new
   * key for each call.
   */
  readonly idempotencyKey?: string | undefined;
}

/** Options of a list. */
export interface ListOptions extends CallOptions {
  /** Max plants per page: 1 to 2,147,483,647. Each page takes one request. Default: 1,000. */
  readonly pageSize?: number | undefined;
  /**
   * The `cursor` of an earlier page: the list continues after that page. Default: the list begins at the
   * first plant.
   */
  readonly cursor?: string | undefined;
}

/** A created plant, and the response. */
export interface CreateResult extends ResponseInfo {
  readonly plant: Plant;
  /**
   * True if an earlier request with the same idempotency key created the plant, so that this request had no
   * effect.
   */
  readonly replayed: boolean;
}

/** A page of a list, and its response. */
export interface PlantPage extends ResponseInfo {
  readonly plants: readonly Plant[];
  /** Start of the next page. Undefined for the last page. */
  readonly cursor: string | undefined;
}

/**
 * A list of plants in the order of their ids. The client sends requests only during iteration, one request
 * per page.
 */
export interface PlantList extends AsyncIterable<Plant> {
  [Symbol.asyncIterator](): AsyncGenerator<Plant, void, undefined>;
  /**
   * Iterates over the pages.
   *
   * @example
   * ```ts
   * import type { Client } from 'plant-store-client';
   *
   * async function readPage(client: Client, cursor?: string): Promise<string | undefined> {
   *   for await (const page of client.listPlants({ pageSize: 20, cursor }).pages()) {
   *     console.log(page.plants);
   *     return page.cursor;
   *   }
   *   return undefined;
   * }
   * ```
   */
  pages(): AsyncGenerator<PlantPage, void, undefined>;
}

/**
 * The operations of the service. A failed call rejects with PlantStoreError, or with the reason of an aborted signal.
 * Invalid arguments cause a RangeError or TypeError before anything is sent.
 */
export interface Client {
  /**
   * Creates a plant; resolves when it is on disk. It is safe to retry after a failure.
   *
   * @example
   * ```ts
   * import type { Client } from 'plant-store-client';
   *
   * async function order(client: Client, orderNumber: string): Promise<boolean> {
   *   const plant = { id: 9223372036854775807n, name: 'Black alder', tag: 'Alnus glutinosa' };
   *   const { replayed } = await client.createPlant(plant, { idempotencyKey: `order-${orderNumber}` });
   *   return replayed;
   * }
   * ```
   */
  createPlant(plant: NewPlant, options?: CreateOptions): Promise<CreateResult>;
  /**
   * Lists all plants in the order of their ids. The next page is read when it is needed.
   *
   * @example
   * ```ts
   * import type { Client } from 'plant-store-client';
   *
   * async function printPlants(client: Client): Promise<void> {
   *   for await (const { name, tag } of client.listPlants()) console.log(name, tag ?? 'no tag');
   * }
   * ```
   */
  listPlants(options?: ListOptions): PlantList;
  /**
   * Deletes a plant; resolves when the deletion is on disk. If an attempt may have taken effect and its retry finds no
   * plant, the plant counts as deleted; `status` is then 404. Deno, Bun and browsers retry by themselves too: there, the call
   * may reject with `noSuchPlant` although it has deleted the plant. If others create a plant with the same id meanwhile, a
   * retry may delete that one: give `retries: 0`.
   *
   * @example
   * ```ts
   * import type { Client } from 'plant-store-client';
   *
   * async function remove(client: Client): Promise<string | undefined> {
   *   const { requestId } = await client.deletePlant(9223372036854775807n, { timeoutMs: 2_000, retries: 1 });
   *   return requestId;
   * }
   * ```
   */
  deletePlant(id: bigint | number, options?: CallOptions): Promise<ResponseInfo>;
}

/**
 * Creates a client of one Plant Store. Throws TypeError or RangeError for invalid options.
 *
 * @example
 * ```ts
 * import { createClient } from 'plant-store-client';
 *
 * const client = createClient({
 *   url: 'https://plants.example/v1',
 *   token: 'plt_…',
 *   afterAttempt: ({ operation, ms, response }) => console.log(operation, ms, response?.status),
 * });
 * ```
 */
export function createClient(options: ClientOptions): Client {
  if (Object(options) !== options) throw new TypeError('createClient needs an object with url and token');
  const { url, maxBodyBytes = DEFAULT_MAX_BODY_BYTES } = options;
  const plants = collectionAt(url);
  const maxPageBytes = checkedInteger('maxBodyBytes', maxBodyBytes, 1);
  const sendWith = createSender(options);

  async function createPlant(plant: NewPlant, options: CreateOptions = {}): Promise<CreateResult> {
    const { idempotencyKey = newKey() } = options;
    const body = jsonOfPlant(plant);
    const headers = { 'content-type': 'application/json', 'idempotency-key': checkedKey(idempotencyKey) };
    // JSON needs up to six bytes for a UTF-16 unit.
    const maxBodyBytes = SHORT_BODY_BYTES + 6 * body.length;
    return sendWith(options)({
      operation: 'createPlant',
      method: 'POST',
      url: plants,
      headers,
      body,
      maxBodyBytes,
      read: ({ info, json }) =>
        info.status === 200 && isPlant(json)
          ? { plant: json, replayed: info.headers.has('idempotent-replayed'), ...info }
          : undefined,
    });
  }

  function listPlants(options: ListOptions = {}): PlantList {
    const { pageSize = DEFAULT_PAGE_SIZE, cursor, signal } = options;
    const limit = checkedInteger('pageSize', pageSize, 1);
    const first = checkedCursor(cursor);
    const send = sendWith(options);

    async function* pages(): AsyncGenerator<PlantPage, void, undefined> {
      let next = first;
      do {
        const url = new URL(`?limit=${limit}`, plants);
        if (next !== undefined) url.searchParams.set('cursor', next);
        const requested = next;
        const page = await send({
          operation: 'listPlants',
          method: 'GET',
          url,
          maxBodyBytes: maxPageBytes,
          read: (received) => pageIn(received, requested),
        });
        next = page.cursor;
        yield page;
        signal?.throwIfAborted();
      } while (next !== undefined);
    }

    async function* each(): AsyncGenerator<Plant, void, undefined> {
      for await (const page of pages()) {
        for (const plant of page.plants) {
          signal?.throwIfAborted();
          yield plant;
        }
      }
    }

    return { pages, [Symbol.asyncIterator]: each };
  }

  async function deletePlant(id: bigint | number, options: CallOptions = {}): Promise<ResponseInfo> {
    const url = new URL(`${plants.href}/${digitsOf(id)}`);
    return sendWith(options)({
      operation: 'deletePlant',
      method: 'DELETE',
      url,
      maxBodyBytes: SHORT_BODY_BYTES,
      read: (received, unknownBefore) => {
        // An earlier attempt may have deleted the plant.
        const isGone = unknownBefore && serviceErrorIn(received)?.code === ErrorCode.noSuchPlant;
        return received.info.status === 204 || isGone ? received.info : undefined;
      },
    });
  }

  return { createPlant, listPlants, deletePlant };
}

/**
 * Returns a key: the time, and 96 random bits. The service stores keys in their order, and new ones next to each other cost it less.
 * Avoids crypto.randomUUID, which browsers do not offer to web pages on plain HTTP.
 */
function newKey(): string {
  return [Date.now(), ...crypto.getRandomValues(new Uint32Array(3))].join('-');
}

/** Reads the page in the response to a request with the cursor `requested`. Returns the same as `read` of a request. */
function pageIn(
  { info, json }: ReceivedResponse,
  requested: string | undefined,
): PlantPage | string | undefined {
  if (info.status !== 200 || !Array.isArray(json) || !json.every(isPlant)) return undefined;
  const target = nextTarget(info.headers.get('link') ?? '');
  // Takes the cursor alone: following a link to another host would send the access token there.
  const cursor = target === undefined ? target : new URLSearchParams(target.split('?')[1]).get('cursor');
  if (cursor === null) return 'its Link header has no cursor';
  // The same page again, or one without plants: the list might never end.
  if (cursor !== undefined && (cursor === requested || json.length === 0)) {
    return 'its Link makes no progress; does a cache ignore the query?';
  }
  return { plants: json, cursor, ...info };
}
