import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { INT64_MAX, INT64_MIN, type Plant } from '../../src/plant.ts';
import { openBulk, openStore } from '../../src/store/open-engine.ts';
import {
  type IdRange,
  type Outcome,
  type PageLimit,
  type PlantPage,
  type Store,
  type StoreOptions,
  StoreOverloaded,
  StoreUnavailable,
  type Write,
} from '../../src/store/store.ts';
import type { Token } from '../../src/token.ts';
import { connections, type TestEngine } from './engines.ts';
import { type PlantFields, plantRow } from './plants.ts';

export const EVERY_ID: IdRange = { from: INT64_MIN, to: INT64_MAX };

/** Returns a page limit for a number of plants. Its limit of bytes is too high to apply. */
export function upTo(plants: number): PageLimit {
  return { plants, bytes: 64 * 1024 * 1024 };
}

interface Opened {
  readonly store: Store;
  close(): Promise<void>;
}

interface Stores {
  readonly url: string;
  /** Clock of all stores of the test. */
  readonly clock: { now: number };
  /** Opens a store on the URL of the test. */
  open(): Promise<Opened>;
}

/**
 * Prepares the URL of a new, empty database, on which a test opens stores. After the test, closes these
 * stores and deletes the database. The test fails if a store reported a fatal error.
 */
export async function prepare(
  t: TestContext,
  engine: TestEngine,
  options: Pick<StoreOptions, 'keyDeletion'> = {},
): Promise<Stores> {
  const clock: Stores['clock'] = { now: Date.UTC(2026, 0, 1) };
  const opened: Opened[] = [];
  const fatal: Error[] = [];
  t.after(async () => {
    for (const { close } of opened) await close();
    assert.deepEqual(fatal, []);
  });
  const url = await engine.freshUrl(t);
  async function open(): Promise<Opened> {
    const store = await openStore(url, {
      onFatal: (error) => fatal.push(error),
      now: () => clock.now,
      connections,
      ...options,
    });
    let closing: Promise<void> | undefined;
    const close = (): Promise<void> => (closing ??= store.close());
    opened.push({ store, close });
    return { store, close };
  }
  return { url, clock, open };
}

export async function openOne(t: TestContext, engine: TestEngine): Promise<Store> {
  const { open } = await prepare(t, engine);
  return (await open()).store;
}

type Creation = Extract<Write, { kind: 'createPlant' }>;

interface CreationFields extends PlantFields {
  readonly idempotencyKey?: string | null;
}

/**
 * Returns the write that creates a plant. Missing fields get the values of a simple plant of the owner alice.
 */
export function create(id: bigint, { idempotencyKey = null, ...fields }: CreationFields = {}): Creation {
  return { kind: 'createPlant', ...plantRow(id, fields), idempotencyKey };
}

/** Fails the test: for events that must not happen. */
export function failTest(error: unknown): never {
  assert.fail(String(error));
}

export function remove(id: bigint, owner = 'alice'): Write {
  return { kind: 'deletePlant', owner, id };
}

/** Returns a write that creates a plant, whose name is `plant`, with an idempotency key. */
export function createOnce(id: bigint, key: string, plant = 'a plant', owner = 'alice'): Creation {
  return create(id, { owner, name: plant, idempotencyKey: key });
}

export function writeAll(store: Store, writes: readonly Write[]): Promise<Outcome[]> {
  return Promise.all(writes.map((write) => store.write(write)));
}

export function createAll(store: Store, ids: readonly bigint[]): Promise<Outcome[]> {
  return writeAll(
    store,
    ids.map((id) => create(id)),
  );
}

export function parsePlants({ json }: Pick<PlantPage, 'json'>): readonly Plant[] {
  return JSON.parse(json);
}

/** Returns the names of an owner's plants, in list order. */
export async function namesOf(store: Store, owner = 'alice', range = EVERY_ID): Promise<readonly string[]> {
  return parsePlants(await store.listPlants(owner, range, upTo(1_000))).map(({ name }) => name);
}

/** Returns all tokens of a store, the oldest first. */
export async function listTokens(url: string): Promise<readonly Token[]> {
  const bulk = await openBulk(url, connections);
  try {
    return await bulk.read(['tokens'], async (contents) => (await Array.fromAsync(contents.tokens())).flat());
  } finally {
    await bulk.close();
  }
}

/** Asserts that the store rejects writes for their content. A transient store error fails the assertion. */
export async function assertRejected(...writes: readonly Promise<Outcome>[]): Promise<void> {
  const isOfTheWrite = (error: unknown): boolean =>
    error instanceof Error && !(error instanceof StoreUnavailable) && !(error instanceof StoreOverloaded);
  await Promise.all(writes.map((write) => assert.rejects(write, isOfTheWrite)));
}

export function countOf(outcomes: readonly Outcome[], outcome: Outcome): number {
  return outcomes.filter((one) => one === outcome).length;
}

/**
 * Returns the items in a different, fixed order: every 7,919th item, in a circle. The number of items must
 * not be a multiple of 7,919.
 */
export function shuffle<T>(values: readonly T[]): T[] {
  return values.map((value, index) => values[(index * 7_919) % values.length] ?? value);
}
