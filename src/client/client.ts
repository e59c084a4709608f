import { PlantStoreError } from './plant-store-error.ts';
import { type Answer, createSend, jsonOf, type SendOptions } from './send.ts';

export { PlantStoreError } from './plant-store-error.ts';
export type { GiveToken } from './send.ts';

/** A plant as the service returns it. */
export interface Plant {
  readonly name: string;
  readonly tag?: string;
}

/** A plant to create. */
export interface NewPlant extends Plant {
  /** An int64. A number must be a safe integer, since beyond 2^53 it may be another id already. */
  readonly id: bigint | number;
}

/** What every call takes. */
export interface CallOptions {
  /** Ends the call, waits and retries included; it rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** What a creation takes besides. */
export interface CreateOptions extends CallOptions {
  /** Makes creations with the same key one and the same for 24 hours; a new one for each call unless given. */
  readonly idempotencyKey?: string;
}

/** What a list takes besides. */
export interface ListOptions extends CallOptions {
  /** Plants in a page, that is in one request, 1 to 2,147,483,647; 1,000 unless given. */
  readonly limit?: number;
}

/**
 * The operations of the service. All reject with PlantStoreError, or with the reason of an aborted signal; with RangeError
 * or TypeError, before anything is sent, when the service could not take what they are given.
 */
export interface Client {
  /** Creates a plant; resolves once it is on disk. Repeating it after a failure is safe. */
  createPlant(plant: NewPlant, options?: CreateOptions): Promise<Plant>;
  /** All plants in the order of their ids, read page by page as they are asked for. */
  listPlants(options?: ListOptions): AsyncGenerator<Plant, void, undefined>;
  /**
   * Deletes a plant; resolves once that is on disk. When an answer was lost and the plant is gone at the next try, it
   * counts as deleted.
   */
  deletePlant(id: bigint | number, options?: CallOptions): Promise<void>;
}

/** Where the service is, what shows who calls, and how patient the client is. */
export interface ClientOptions extends Omit<SendOptions, 'fetch'> {
  /** Where the service is, with its base path if it has one, such as `https://plants.example/v1`. */
  readonly url: string | URL;
  /** The fetch of the platform unless given. */
  readonly fetch?: typeof fetch;
}

const PLANTS_IN_PAGE = 1_000;
const INT32_MAX = 2 ** 31 - 1;
const NO_SUCH_PLANT = 40400;

/** A client of one Plant Store. Throws TypeError for a url or a token that cannot be one. */
export function createClient({ url, fetch = globalThis.fetch, ...options }: ClientOptions): Client {
  const plants = collectionAt(url);
  const send = createSend({ fetch, ...options });

  async function createPlant(plant: NewPlant, options: CreateOptions = {}): Promise<Plant> {
    const body = bodyOf(plant);
    const { signal, idempotencyKey = crypto.randomUUID() } = options;
    const answer = await send({
      method: 'POST',
      url: plants,
      headers: { 'content-type': 'application/json', 'idempotency-key': idempotencyKey },
      body,
      signal,
    });
    return plantOf(jsonOf(answer.text), answer);
  }

  async function* listPlants(options: ListOptions = {}): AsyncGenerator<Plant, void, undefined> {
    const { limit = PLANTS_IN_PAGE, signal } = options;
    if (!Number.isInteger(limit) || limit < 1 || limit > INT32_MAX)
      throw new RangeError(`the limit ${limit} is not an integer from 1 to ${INT32_MAX}`);
    let next: URL | undefined = new URL(`?limit=${limit}`, plants);
    while (next !== undefined) {
      const answer = await send({ method: 'GET', url: next, signal });
      const page = jsonOf(answer.text);
      if (!Array.isArray(page)) throw unexpected(answer);
      for (const plant of page) yield plantOf(plant, answer);
      next = nextOf(answer, next);
    }
  }

  async function deletePlant(id: bigint | number, { signal }: CallOptions = {}): Promise<void> {
    const url = new URL(`${plants.href}/${int64(id)}`);
    await send({ method: 'DELETE', url, signal }).catch((failure: unknown) => {
      if (!isGone(failure)) throw failure;
    });
  }

  return { createPlant, listPlants, deletePlant };
}

function collectionAt(url: string | URL): URL {
  // Without its scheme, the host of `localhost:8080` reads as one. The value is not repeated: it may have a password in it.
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new TypeError(
      'the option url must be an http:// or https:// address, such as http://127.0.0.1:8080',
    );
  }
  const { origin, pathname } = new URL(url);
  // As one text: relative to the origin, a path that begins with `//` would name another host, which would get the token.
  return new URL(`${origin}${pathname.replace(/\/+$/, '')}/plants`);
}

/** Written by hand, since JSON.stringify takes no bigint. Throws for what the types forbid: not all callers have them. */
function bodyOf({ id, name, tag }: NewPlant): string {
  const digits = int64(id);
  if (typeof name !== 'string') throw new TypeError('the name of a plant must be a string');
  if (tag !== undefined && typeof tag !== 'string')
    throw new TypeError('the tag of a plant must be a string, or left out');
  return `{"id":${digits},${JSON.stringify({ name, tag }).slice(1)}`;
}

/** The digits of an id. Throws RangeError when it is no int64, or a number that may have been another one. */
function int64(id: bigint | number): string {
  if (typeof id !== 'bigint' && typeof id !== 'number') {
    throw new RangeError(`the id is neither a bigint nor a number, but of the type ${typeof id}`);
  }
  if (typeof id === 'number' && !Number.isSafeInteger(id)) {
    throw new RangeError(`the id ${id} is not a safe integer; give it as a bigint`);
  }
  if (BigInt.asIntN(64, BigInt(id)) !== BigInt(id)) {
    throw new RangeError(`the id ${id} is not an integer from -2^63 to 2^63 - 1`);
  }
  return String(id);
}

function isGone(failure: unknown): boolean {
  return failure instanceof PlantStoreError && failure.error === NO_SUCH_PLANT && failure.outcomeUnknown;
}

function plantOf(value: unknown, answer: Answer): Plant {
  if (typeof value !== 'object' || value === null || !('name' in value)) throw unexpected(answer);
  const { name } = value;
  const tag = 'tag' in value ? value.tag : undefined;
  if (typeof name !== 'string' || !(tag === undefined || typeof tag === 'string')) throw unexpected(answer);
  return tag === undefined ? { name } : { name, tag };
}

/** RFC 8288. A link to another origin would take the token there. */
function nextOf(answer: Answer, page: URL): URL | undefined {
  const target = /<([^>]*)>; *rel="?next"?/.exec(answer.headers.get('link') ?? '')?.[1];
  if (target === undefined) return undefined;
  const next = new URL(target, page);
  if (next.origin !== page.origin) throw unexpected(answer);
  return next;
}

function unexpected({ status, headers, text }: Answer): PlantStoreError {
  const begin = text.slice(0, 100);
  return new PlantStoreError(
    `the answer is not that of a Plant Store; is the url right? It begins: ${begin}`,
    {
      status,
      requestId: headers.get('x-request-id') ?? undefined,
      outcomeUnknown: true,
    },
  );
}
