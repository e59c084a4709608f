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
  /** An int64. A number must be a safe integer: above 2^53 it may already be another id. */
  readonly id: bigint | number;
}

/** Options of every call. */
export interface CallOptions {
  /** Ends the call with its pauses and retries. The call rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** Options of a creation. */
export interface CreateOptions extends CallOptions {
  /** Within 24 hours, a second creation with the same key has no effect. Default: a new key for each call. */
  readonly idempotencyKey?: string;
}

/** Options of a list. */
export interface ListOptions extends CallOptions {
  /** Plants per page, which is one request: 1 to 2,147,483,647. Default: 1,000. */
  readonly limit?: number;
}

/**
 * The operations of the service. All reject with PlantStoreError, or with the reason of an aborted signal. Invalid
 * arguments cause a RangeError or TypeError before anything is sent.
 */
export interface Client {
  /** Creates a plant; resolves when it is on disk. It is safe to retry after a failure. */
  createPlant(plant: NewPlant, options?: CreateOptions): Promise<Plant>;
  /** Lists all plants in the order of their ids. The next page is read when it is needed. */
  listPlants(options?: ListOptions): AsyncGenerator<Plant, void, undefined>;
  /**
   * Deletes a plant; resolves when that is on disk. When a response was lost and the retry finds no plant, it
   * counts as deleted.
   */
  deletePlant(id: bigint | number, options?: CallOptions): Promise<void>;
}

/** The address of the service, the token, timeout and retries. */
export interface ClientOptions extends Omit<SendOptions, 'fetch'> {
  /** The address of the service with its base path, such as `https://plants.example/v1`. */
  readonly url: string | URL;
  /** Default: the fetch of the platform. */
  readonly fetch?: typeof fetch;
}

const PLANTS_IN_PAGE = 1_000;
const INT32_MAX = 2 ** 31 - 1;
const NO_SUCH_PLANT = 40400;

/** Creates a client of one Plant Store. Throws TypeError for an invalid url or token. */
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
  // In `localhost:8080` the host parses as a scheme. The message does not show the value: it may have a password.
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new TypeError(
      'the option url must be an http:// or https:// address, such as http://127.0.0.1:8080',
    );
  }
  const { origin, pathname } = new URL(url);
  // Joined as text: as a relative URL, a path that starts with `//` names another host, which would get the token.
  return new URL(`${origin}${pathname.replace(/\/+$/, '')}/plants`);
}

interface FieldRule {
  readonly accepts: (value: unknown) => boolean;
  /** Completes the sentence "the name of a plant …". */
  readonly rule: string;
}

const FIELDS = Object.entries({
  name: { accepts: isString, rule: 'must be a string' },
  tag: { accepts: isStringOrAbsent, rule: 'must be a string, or left out' },
} satisfies Record<keyof Plant, FieldRule>);

function isString(value: unknown): boolean {
  return typeof value === 'string';
}

function isStringOrAbsent(value: unknown): boolean {
  return value === undefined || typeof value === 'string';
}

function isPlant(value: object): value is Plant {
  return FIELDS.every(([field, { accepts }]) => accepts(Reflect.get(value, field)));
}

/** Copies the fields of a plant; others are left out. */
function pickFields(value: object): object {
  const picked: Record<string, unknown> = {};
  for (const [field] of FIELDS) {
    const member: unknown = Reflect.get(value, field);
    if (member !== undefined) picked[field] = member;
  }
  return picked;
}

/** Renders the id by hand: JSON.stringify takes no bigint. Checks at run time too: callers may have no types. */
function bodyOf(plant: NewPlant): string {
  const digits = int64(plant.id);
  for (const [field, { accepts, rule }] of FIELDS) {
    if (!accepts(Reflect.get(plant, field))) throw new TypeError(`the ${field} of a plant ${rule}`);
  }
  return `{"id":${digits},${JSON.stringify(pickFields(plant)).slice(1)}`;
}

/** The digits of an id. Throws RangeError unless it is an int64 as bigint, or a safe integer. */
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
  if (typeof value !== 'object' || value === null) throw unexpected(answer);
  const plant = pickFields(value);
  if (!isPlant(plant)) throw unexpected(answer);
  return plant;
}

/** Reads the `next` link (RFC 8288). Rejects another origin, which would get the token. */
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
