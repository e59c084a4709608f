import { PlantStoreError } from './plant-store-error.ts';
import { type Answer, createSend, jsonOf, type SendOptions } from './send.ts';

export { PlantStoreError } from './plant-store-error.ts';
export type { GiveToken } from './send.ts';

/** A plant as the service returns it. */
export interface Plant {
  readonly name: string;
  readonly tag?: string;
}

export interface NewPlant extends Plant {
  /** An int64. A number must be a safe integer, since beyond 2^53 it may be another id already. */
  readonly id: bigint | number;
}

export interface CallOptions {
  /** Ends the call, waits and retries included; it rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

export interface CreateOptions extends CallOptions {
  /** Makes creations with the same key one and the same for 24 hours; a new one for each call unless given. */
  readonly idempotencyKey?: string;
}

export interface ListOptions extends CallOptions {
  /** Plants in a page, that is in one request; 1,000 unless given. */
  readonly limit?: number;
}

/** The operations of the service. All reject with PlantStoreError, or with the reason of an aborted signal. */
export interface Client {
  /** Creates a plant; resolves once it is on disk. Repeating it after a failure is safe. Throws RangeError for an id that is no int64. */
  createPlant(plant: NewPlant, options?: CreateOptions): Promise<Plant>;
  /** All plants in the order of their ids, read page by page as they are asked for. */
  listPlants(options?: ListOptions): AsyncGenerator<Plant, void, undefined>;
  /**
   * Deletes a plant; resolves once that is on disk. When an answer was lost and the plant is gone at the next try, it
   * counts as deleted. Throws RangeError for an id that is no int64.
   */
  deletePlant(id: bigint | number, options?: CallOptions): Promise<void>;
}

export interface ClientOptions extends Omit<SendOptions, 'fetch'> {
  /** Where the service is, with its base path if it has one, such as `https://plants.example/v1`. */
  readonly url: string | URL;
  /** The fetch of the platform unless given. */
  readonly fetch?: typeof fetch;
}

const PLANTS_IN_PAGE = 1_000;
const NO_SUCH_PLANT = 40400;

/** A client of one Plant Store. */
export function createClient({ url, fetch = globalThis.fetch, ...options }: ClientOptions): Client {
  const plants = collectionAt(url);
  const send = createSend({ fetch, ...options });

  async function createPlant(plant: NewPlant, options: CreateOptions = {}): Promise<Plant> {
    const { name, tag, id } = plant;
    const { signal, idempotencyKey = crypto.randomUUID() } = options;
    const answer = await send({
      method: 'POST',
      url: plants,
      headers: { 'content-type': 'application/json', 'idempotency-key': idempotencyKey },
      // Written by hand, since JSON.stringify takes no bigint.
      body: `{"id":${int64(id)},${JSON.stringify({ name, tag }).slice(1)}`,
      signal,
    });
    return plantOf(jsonOf(answer.text), answer);
  }

  async function* listPlants(options: ListOptions = {}): AsyncGenerator<Plant, void, undefined> {
    const { limit = PLANTS_IN_PAGE, signal } = options;
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
    const url = new URL(`${plants.pathname}/${int64(id)}`, plants);
    await send({ method: 'DELETE', url, signal }).catch((failure: unknown) => {
      if (!isGone(failure)) throw failure;
    });
  }

  return { createPlant, listPlants, deletePlant };
}

function collectionAt(url: string | URL): URL {
  const { origin, pathname } = new URL(url);
  return new URL(`${pathname.replace(/\/+$/, '')}/plants`, origin);
}

/** The digits of an id. Throws RangeError when it is no int64, or a number that may have been another one. */
function int64(id: bigint | number): string {
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
