import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { INT64_MAX, INT64_MIN, type Plant } from '../src/plant.ts';
import { openBulk, openStore } from '../src/store/open.ts';
import {
  type IdRange,
  type Outcome,
  type PlantPage,
  type Store,
  StoreOverloaded,
  StoreUnavailable,
  type Write,
} from '../src/store.ts';
import { LAST_USE_STEP_MS, mintSecret, newToken, scopes, type Token } from '../src/token.ts';
import { connections, type TestEngine } from './engines.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const EVERY_ID: IdRange = { from: INT64_MIN, to: INT64_MAX };

/** Writes that one submission may hold without any being refused as too many. */
const SUBMITTED_AT_ONCE = 5_000;

/** What every store does, whatever its engine: this is the definition of one. */
export function describeStore(engine: TestEngine): void {
  describe(`a store on ${engine.name}`, () => {
    describe('plants', () => testPlants(engine));
    describe('pages', () => testPages(engine));
    describe('the JSON of a page', () => testJson(engine));
    describe('counting', () => testCounting(engine));
    describe('writes submitted together', () => testConcurrency(engine));
    describe('idempotency keys', () => testIdempotency(engine));
    describe('idempotency keys as time passes', () => testIdempotencyInTime(engine));
    describe('tokens', () => testTokens(engine));
    describe('the use and the end of tokens', () => testTokenLife(engine));
    describe('opening and closing', () => testLife(engine));
  });
}

interface Opened {
  readonly store: Store;
  close(): Promise<void>;
}

interface Stores {
  readonly url: string;
  /** The clock all the stores go by. */
  readonly clock: { now: number; fault?: Error };
  /** One more store on the same URL. */
  open(): Promise<Opened>;
}

/** Stores on one new URL. They close before the engine takes the URL away, and none of them may have failed. */
async function prepare(t: TestContext, engine: TestEngine): Promise<Stores> {
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
      now: () => {
        if (clock.fault !== undefined) throw clock.fault;
        return clock.now;
      },
      connections,
    });
    let closing: Promise<void> | undefined;
    const close = (): Promise<void> => (closing ??= store.close());
    opened.push({ store, close });
    return { store, close };
  }
  return { url, clock, open };
}

async function openOne(t: TestContext, engine: TestEngine): Promise<Store> {
  const { open } = await prepare(t, engine);
  return (await open()).store;
}

interface PlantFields {
  readonly owner?: string;
  readonly name?: string;
  readonly tag?: string | null;
  readonly idempotency?: { readonly key: string; readonly digest: Uint8Array };
}

function create(id: bigint, fields: PlantFields = {}): Write {
  const { owner = 'alice', name = `plant ${id}`, tag = null, idempotency = null } = fields;
  return { kind: 'createPlant', owner, id, name, tag, idempotency };
}

function remove(id: bigint, owner = 'alice'): Write {
  return { kind: 'deletePlant', owner, id };
}

/** A create with an idempotency key; `plant` tells plants apart as their digests do. */
function createOnce(id: bigint, key: string, plant = 'a plant', owner = 'alice'): Write {
  const digest = Buffer.alloc(32, `${id} ${plant}`);
  return create(id, { owner, name: plant, idempotency: { key, digest } });
}

function writeAll(store: Store, writes: readonly Write[]): Promise<Outcome[]> {
  return Promise.all(writes.map((write) => store.write(write)));
}

function createAll(store: Store, ids: readonly bigint[]): Promise<Outcome[]> {
  return writeAll(
    store,
    ids.map((id) => create(id)),
  );
}

async function writeMany(store: Store, writes: readonly Write[]): Promise<void> {
  for (let start = 0; start < writes.length; start += SUBMITTED_AT_ONCE) {
    await writeAll(store, writes.slice(start, start + SUBMITTED_AT_ONCE));
  }
}

function parsePlants({ json }: PlantPage): readonly Plant[] {
  return JSON.parse(json);
}

/** The names of an owner's plants, in the order of the list. */
async function namesOf(store: Store, owner = 'alice', range = EVERY_ID): Promise<readonly string[]> {
  return parsePlants(await store.listPlants(owner, range, 1_000)).map(({ name }) => name);
}

/** Holds that writes are refused for what they hold, which says nothing against the store. */
async function assertRefused(...writes: readonly Promise<Outcome>[]): Promise<void> {
  const isOfTheWrite = (error: unknown): boolean =>
    error instanceof Error && !(error instanceof StoreUnavailable) && !(error instanceof StoreOverloaded);
  await Promise.all(writes.map((write) => assert.rejects(write, isOfTheWrite)));
}

function countOf(outcomes: readonly Outcome[], outcome: Outcome): number {
  return outcomes.filter((one) => one === outcome).length;
}

/** The same order for every run: a permutation by a step that has no factor in common with the length. */
function shuffle<T>(values: readonly T[]): T[] {
  return values.map((value, index) => values[(index * 7_919) % values.length] ?? value);
}

function testPlants(engine: TestEngine): void {
  test('a plant is created once; its id is then taken, even for an identical plant', async (t) => {
    const store = await openOne(t, engine);
    assert.equal(await store.write(create(7n)), 'created');
    assert.equal(await store.write(create(7n)), 'idTaken');
    assert.equal(await store.write(create(7n, { name: 'another' })), 'idTaken');
    assert.deepEqual(await namesOf(store), ['plant 7']);
  });

  test('a plant is deleted once; then it is absent, and its id is free', async (t) => {
    const store = await openOne(t, engine);
    await store.write(create(7n));
    assert.equal(await store.write(remove(7n)), 'deleted');
    assert.equal(await store.write(remove(7n)), 'absent');
    assert.deepEqual(await namesOf(store), []);
    assert.equal(await store.write(create(7n, { name: 'second' })), 'created');
    assert.deepEqual(await namesOf(store), ['second']);
  });

  test('a delete takes exactly one plant, and none when the id is absent', async (t) => {
    const store = await openOne(t, engine);
    await createAll(store, [1n, 2n, 3n]);
    assert.equal(await store.write(remove(4n)), 'absent');
    assert.equal(await store.write(remove(2n)), 'deleted');
    assert.deepEqual(await namesOf(store), ['plant 1', 'plant 3']);
  });

  test('ids that no double tells apart are plants of their own', async (t) => {
    const store = await openOne(t, engine);
    const twoTo53 = 2n ** 53n;
    const ids = [INT64_MIN, INT64_MIN + 1n, -twoTo53 - 1n, -twoTo53, -twoTo53 + 1n, -1n, 0n, 1n];
    ids.push(twoTo53 - 1n, twoTo53, twoTo53 + 1n, INT64_MAX - 1n, INT64_MAX);
    assert.deepEqual(new Set(await createAll(store, ids)), new Set(['created']));
    for (const id of ids) {
      assert.deepEqual(await namesOf(store, 'alice', { from: id, to: id }), [`plant ${id}`]);
    }
    for (const id of ids) {
      const others = ids.filter((one) => one !== id).map((one) => `plant ${one}`);
      assert.equal(await store.write(remove(id)), 'deleted');
      assert.deepEqual(await namesOf(store), others);
      assert.equal(await store.write(create(id)), 'created');
    }
  });

  test('owners share nothing: not ids, not lists, not deletes', async (t) => {
    const store = await openOne(t, engine);
    const owners = ['alice', 'Alice', 'alice.', 'bob'];
    for (const owner of owners)
      assert.equal(await store.write(create(1n, { owner, name: owner })), 'created');
    assert.equal(await store.write(remove(1n, 'carol')), 'absent');
    assert.equal(await store.write(remove(1n, 'bob')), 'deleted');
    assert.equal(await store.write(remove(1n, 'bob')), 'absent');
    for (const owner of owners) {
      assert.deepEqual(await namesOf(store, owner), owner === 'bob' ? [] : [owner]);
      assert.equal(await store.findNthId(owner, EVERY_ID, 1), owner === 'bob' ? undefined : 1n);
    }
  });

  test('a read sees a write as soon as it is acknowledged, in every store on the URL', async (t) => {
    const { open } = await prepare(t, engine);
    const [first, second] = [await open(), await open()];
    for (let id = 1n; id <= 50n; id += 1n) {
      await first.store.write(create(id));
      assert.deepEqual(await namesOf(first.store), [`plant ${id}`]);
      assert.deepEqual(await namesOf(second.store), [`plant ${id}`]);
      await second.store.write(remove(id));
      assert.deepEqual(await namesOf(first.store), []);
    }
  });
}

function testPages(engine: TestEngine): void {
  test('an owner without plants has one empty page', async (t) => {
    const store = await openOne(t, engine);
    assert.deepEqual(await store.listPlants('alice', EVERY_ID, 10), {
      json: '[]',
      count: 0,
      last: undefined,
      more: false,
    });
  });

  test('plants come in ascending order of id, not of arrival or of text', async (t) => {
    const store = await openOne(t, engine);
    for (const id of [10n, -9n, 2n, -10n, 9n, 100n, 0n]) await store.write(create(id));
    const expected = [-10n, -9n, 0n, 2n, 9n, 10n, 100n].map((id) => `plant ${id}`);
    assert.deepEqual(await namesOf(store), expected);
  });

  test('a page says how many plants it has, which is the last, and whether more follow', async (t) => {
    const store = await openOne(t, engine);
    await createAll(store, [10n, 20n, 30n]);
    const page = async (from: bigint, to: bigint, atMost: number) => {
      const { count, last, more } = await store.listPlants('alice', { from, to }, atMost);
      return [count, last, more];
    };
    assert.deepEqual(await page(INT64_MIN, INT64_MAX, 2), [2, 20n, true]);
    assert.deepEqual(await page(INT64_MIN, INT64_MAX, 3), [3, 30n, false]);
    assert.deepEqual(await page(INT64_MIN, INT64_MAX, 4), [3, 30n, false]);
    assert.deepEqual(await page(21n, INT64_MAX, 4), [1, 30n, false]);
    assert.deepEqual(await page(31n, INT64_MAX, 4), [0, undefined, false]);
  });

  test('a range has both its ends, and nothing beyond them counts as more', async (t) => {
    const store = await openOne(t, engine);
    const ids = [INT64_MIN, 10n, 20n, 30n, INT64_MAX];
    await createAll(store, ids);
    const page = async (from: bigint, to: bigint, atMost: number) => {
      const found = await store.listPlants('alice', { from, to }, atMost);
      return [parsePlants(found).map(({ name }) => name), found.more];
    };
    assert.deepEqual(await page(10n, 20n, 5), [['plant 10', 'plant 20'], false]);
    assert.deepEqual(await page(10n, 20n, 2), [['plant 10', 'plant 20'], false]);
    assert.deepEqual(await page(10n, 20n, 1), [['plant 10'], true]);
    assert.deepEqual(await page(11n, 19n, 5), [[], false]);
    assert.deepEqual(await page(INT64_MIN, INT64_MIN, 5), [[`plant ${INT64_MIN}`], false]);
    assert.deepEqual(await page(INT64_MAX, INT64_MAX, 5), [[`plant ${INT64_MAX}`], false]);
  });

  test('plants of another owner never count as more', async (t) => {
    const store = await openOne(t, engine);
    await writeAll(store, [create(1n), create(2n, { owner: 'bob' }), create(2n, { owner: 'aaron' })]);
    const { count, last, more } = await store.listPlants('alice', EVERY_ID, 1);
    assert.deepEqual([count, last, more], [1, 1n, false]);
  });

  test('pages of any size, each from behind the last, join to the whole', async (t) => {
    const store = await openOne(t, engine);
    const ids = Array.from({ length: 100 }, (_, index) => BigInt(index - 50) * 1_000_003n);
    await createAll(store, shuffle(ids));
    const whole = ids.map((id) => `plant ${id}`);
    for (const size of [1, 7, 50, 99, 100, 101, 100_000]) {
      const names: string[] = [];
      for (let from = INT64_MIN, more = true; more; ) {
        const page = await store.listPlants('alice', { from, to: INT64_MAX }, size);
        names.push(...parsePlants(page).map(({ name }) => name));
        if (page.last !== undefined) from = page.last + 1n;
        more = page.more;
      }
      assert.deepEqual(names, whole, `pages of ${size}`);
    }
  });
}

/** Texts that go wrong where a text is cut, folded, normalised, trimmed or escaped in another way than JSON.stringify does. */
function hostileTexts(): readonly string[] {
  const controls = Array.from({ length: 0x1f }, (_, index) => String.fromCodePoint(index + 1));
  const bmp = Array.from({ length: 0xffff }, (_, index) => String.fromCharCode(index + 1));
  return [
    '',
    ' ',
    ' both ends \t\n',
    ...controls,
    controls.join(''),
    '"',
    '\\',
    '\\"\\\\"',
    '\\u0000 \\n as text',
    "/ </script> <!-- & ' `",
    '\u007f',
    '\u0080\u0085\u009f',
    '\u2028\u2029',
    '\ufeffBOM first',
    '\ufffd\ufffe\uffff',
    '🌱🪴👩🏽‍🌾🏳️‍🌈',
    '\u{10000}\u{10ffff}',
    'שלום \u202eabc\u202c \u200f',
    'e\u0301 is not é; ﬁ, Å, Å',
    'Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞',
    "Robert'); DROP TABLE plants;--",
    '[1,null,true]',
    '{"name":"x"}',
    'null',
    '1e999',
    '$1 :name ?1 %s {0}',
    'x'.repeat(60 * 1024),
    '🌱"\\\u0001'.repeat(8 * 1024),
    bmp.filter((unit) => unit.isWellFormed()).join(''),
  ];
}

function testJson(engine: TestEngine): void {
  async function listed(store: Store, plants: readonly Plant[]): Promise<PlantPage> {
    const writes = plants.map(({ name, tag }, index) => create(BigInt(index), { name, tag: tag ?? null }));
    await writeAll(store, writes);
    return store.listPlants('alice', EVERY_ID, plants.length);
  }

  test('it is what JSON.stringify gives, byte for byte, for any name', async (t) => {
    const plants = hostileTexts().map((name) => ({ name }));
    const page = await listed(await openOne(t, engine), plants);
    assert.equal(page.json, JSON.stringify(plants));
    assert.equal(page.count, plants.length);
  });

  test('it is what JSON.stringify gives, byte for byte, for any tag', async (t) => {
    const plants = hostileTexts().map((tag) => ({ name: `name of ${tag}`, tag }));
    const page = await listed(await openOne(t, engine), plants);
    assert.equal(page.json, JSON.stringify(plants));
  });

  test('a plant without a tag has no member of that name; one with an empty tag has', async (t) => {
    const plants = [{ name: 'a' }, { name: 'b', tag: '' }, { name: 'c' }, { name: 'd', tag: 'e' }];
    const page = await listed(await openOne(t, engine), plants);
    assert.equal(page.json, '[{"name":"a"},{"name":"b","tag":""},{"name":"c"},{"name":"d","tag":"e"}]');
  });
}

function testCounting(engine: TestEngine): void {
  test('the nth id of a range counts from 1, and is undefined past the end', async (t) => {
    const store = await openOne(t, engine);
    await writeAll(store, [create(-5n), create(10n), create(20n), create(10n, { owner: 'bob' })]);
    const nth = (n: number, range = EVERY_ID) => store.findNthId('alice', range, n);
    assert.deepEqual(await Promise.all([1, 2, 3, 4].map((n) => nth(n))), [-5n, 10n, 20n, undefined]);
    assert.equal(await nth(1, { from: -4n, to: INT64_MAX }), 10n);
    assert.equal(await nth(2, { from: -5n, to: 10n }), 10n);
    assert.equal(await nth(3, { from: -5n, to: 19n }), undefined);
    assert.equal(await nth(1, { from: 21n, to: INT64_MAX }), undefined);
    assert.equal(await store.findNthId('carol', EVERY_ID, 1), undefined);
    assert.equal(await store.findNthId('bob', EVERY_ID, 2), undefined);
  });

  test('an nth id far inside a long list is found exactly', async (t) => {
    const store = await openOne(t, engine);
    const length = 45_000;
    const ids = Array.from({ length: length - 1 }, (_, index) => BigInt(index) * 3n - 60_000n);
    ids.push(INT64_MAX);
    await writeMany(
      store,
      shuffle(ids).map((id) => create(id, { name: '' })),
    );
    for (const n of [1, 2, 19_999, 20_000, 20_001, 39_999, 40_000, 40_001, length - 1, length]) {
      assert.equal(await store.findNthId('alice', EVERY_ID, n), ids[n - 1], `number ${n}`);
    }
    for (const n of [length + 1, 60_000, 60_001, 2 ** 31 - 1]) {
      assert.equal(await store.findNthId('alice', EVERY_ID, n), undefined, `number ${n}`);
    }
    const at = (n: number): bigint => ids[n - 1] ?? 0n;
    assert.equal(await store.findNthId('alice', { from: at(5), to: at(25_004) }, 25_000), at(25_004));
    assert.equal(await store.findNthId('alice', { from: at(5), to: at(25_004) }, 25_001), undefined);
    assert.equal(await store.findNthId('alice', { from: at(5), to: at(20_004) }, 20_001), undefined);
    const lastOf20000: IdRange = { from: at(length - 19_999), to: INT64_MAX };
    assert.equal(await store.findNthId('alice', lastOf20000, 20_000), INT64_MAX);
    assert.equal(await store.findNthId('alice', lastOf20000, 20_001), undefined);
  });
}

function testConcurrency(engine: TestEngine): void {
  test('writes of one id are carried out in the order they were submitted', async (t) => {
    const store = await openOne(t, engine);
    const ids = Array.from({ length: 100 }, (_, index) => BigInt(index));
    const writes = ids.flatMap((id) => [
      create(id, { name: 'first' }),
      create(id, { name: 'refused' }),
      remove(id),
      remove(id),
      create(id, { name: `last ${id}` }),
    ]);
    const outcomes = await writeAll(store, writes);
    const expected = ids.flatMap((): Outcome[] => ['created', 'idTaken', 'deleted', 'absent', 'created']);
    assert.deepEqual(outcomes, expected);
    assert.deepEqual(
      await namesOf(store),
      ids.map((id) => `last ${id}`),
    );
  });

  test('of 2,000 creates of 1,500 ids, each id has exactly one winner, and it is the one listed', async (t) => {
    const store = await openOne(t, engine);
    const attempts = Array.from({ length: 2_000 }, (_, index) => ({
      id: BigInt(index % 1_500),
      name: `attempt ${index}`,
    }));
    const outcomes = await writeAll(
      store,
      attempts.map(({ id, name }) => create(id, { name })),
    );
    const winners = new Map<bigint, string>();
    for (const [index, { id, name }] of attempts.entries()) {
      if (outcomes[index] !== 'created') continue;
      assert.equal(winners.has(id), false, `two winners for ${id}`);
      winners.set(id, name);
    }
    assert.equal(countOf(outcomes, 'created'), 1_500);
    assert.equal(countOf(outcomes, 'idTaken'), 500);
    const page = await store.listPlants('alice', EVERY_ID, 2_000);
    const byId = [...winners].sort(([a], [b]) => Number(a - b));
    assert.deepEqual(
      parsePlants(page),
      byId.map(([, name]) => ({ name })),
    );
  });

  test('a write that no store can hold is refused alone; those around it succeed, in order', async (t) => {
    const store = await openOne(t, engine);
    const before = Array.from({ length: 100 }, (_, index) => store.write(create(BigInt(index))));
    const tooLarge = store.write(create(2n ** 63n));
    const between = writeAll(store, [create(500n), remove(500n), create(500n), create(500n), remove(600n)]);
    const tooSmall = store.write(remove(-(2n ** 63n) - 1n));
    const after = Array.from({ length: 100 }, (_, index) => store.write(create(BigInt(1_000 + index))));
    await assertRefused(tooLarge, tooSmall);
    assert.deepEqual(await between, ['created', 'deleted', 'created', 'idTaken', 'absent']);
    assert.deepEqual(new Set(await Promise.all([...before, ...after])), new Set(['created']));
    const { count } = await store.listPlants('alice', EVERY_ID, 1_000);
    assert.equal(count, 201);
  });

  test('a write that no store can hold is refused alone even when it is alone', async (t) => {
    const store = await openOne(t, engine);
    await assertRefused(store.write(create(2n ** 63n)));
    assert.equal(await store.write(create(1n)), 'created');
    assert.deepEqual(await namesOf(store), ['plant 1']);
  });

  test('two stores on one URL write at the same time, and each id still has one winner', async (t) => {
    const { open } = await prepare(t, engine);
    const [first, second] = [await open(), await open()];
    const ids = Array.from({ length: 300 }, (_, index) => BigInt(index));
    const [mine, theirs] = await Promise.all([
      writeAll(
        first.store,
        ids.map((id) => create(id, { name: `first ${id}` })),
      ),
      writeAll(
        second.store,
        [...ids].reverse().map((id) => create(id, { name: `second ${id}` })),
      ),
    ]);
    assert.equal(countOf(mine, 'created') + countOf(theirs, 'created'), ids.length);
    assert.equal(countOf(mine, 'idTaken') + countOf(theirs, 'idTaken'), ids.length);
    const winners = ids.map((id, index) => `${mine[index] === 'created' ? 'first' : 'second'} ${id}`);
    assert.deepEqual(await namesOf(first.store), winners);
    assert.deepEqual(await namesOf(second.store), winners);
  });
}

function testIdempotency(engine: TestEngine): void {
  test('a key repeats its first answer, and nothing is created twice', async (t) => {
    const store = await openOne(t, engine);
    assert.equal(await store.write(createOnce(1n, 'key')), 'created');
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    await store.write(remove(1n));
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    assert.deepEqual(await namesOf(store), []);
  });

  test('a key repeats that the id was taken, even once it is free', async (t) => {
    const store = await openOne(t, engine);
    await store.write(create(1n));
    assert.equal(await store.write(createOnce(1n, 'key')), 'idTaken');
    await store.write(remove(1n));
    assert.equal(await store.write(createOnce(1n, 'key')), 'idTakenReplayed');
    assert.deepEqual(await namesOf(store), []);
  });

  test('a key that was used for another plant is reused, and that changes nothing', async (t) => {
    const store = await openOne(t, engine);
    await store.write(createOnce(1n, 'key'));
    assert.equal(await store.write(createOnce(1n, 'key', 'another plant')), 'keyReused');
    assert.equal(await store.write(createOnce(2n, 'key')), 'keyReused');
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    assert.deepEqual(await namesOf(store), ['a plant']);
  });

  test('keys are apart by owner and by every character', async (t) => {
    const store = await openOne(t, engine);
    assert.equal(await store.write(createOnce(1n, 'key')), 'created');
    assert.equal(await store.write(createOnce(1n, 'key', 'of bob', 'bob')), 'created');
    const others = ['KEY', 'key2', 'k'.repeat(255), `${'k'.repeat(254)}l`, "'%_\\~"];
    for (const [index, key] of others.entries()) {
      assert.equal(await store.write(createOnce(BigInt(10 + index), key)), 'created');
    }
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    assert.equal(await store.write(createOnce(1n, 'key', 'of bob', 'bob')), 'createdReplayed');
  });

  test('a create without a key knows nothing of keys', async (t) => {
    const store = await openOne(t, engine);
    await store.write(createOnce(1n, 'key'));
    assert.equal(await store.write(create(1n, { name: 'a plant' })), 'idTaken');
  });

  test('of many creates with one key at once, one creates and the others repeat its answer', async (t) => {
    const { open } = await prepare(t, engine);
    const [first, second] = [await open(), await open()];
    const same = Array.from({ length: 200 }, () => createOnce(1n, 'key'));
    const both = await Promise.all([writeAll(first.store, same), writeAll(second.store, same)]);
    const outcomes = both.flat();
    assert.equal(countOf(outcomes, 'created'), 1);
    assert.equal(countOf(outcomes, 'createdReplayed'), 399);
    assert.deepEqual(await namesOf(first.store), ['a plant']);
  });

  test('of many plants with one key at once, one is created and the others reuse the key', async (t) => {
    const store = await openOne(t, engine);
    const different = Array.from({ length: 200 }, (_, index) =>
      createOnce(BigInt(index), 'key', `plant ${index}`),
    );
    const outcomes = await writeAll(store, different);
    assert.equal(countOf(outcomes, 'created'), 1);
    assert.equal(countOf(outcomes, 'keyReused'), 199);
    assert.deepEqual(await namesOf(store), [`plant ${outcomes.indexOf('created')}`]);
  });

  test('a write that was refused leaves its key unused', async (t) => {
    const store = await openOne(t, engine);
    const refused = store.write(createOnce(2n ** 63n, 'key'));
    const neighbour = store.write(createOnce(2n, 'neighbour'));
    await assertRefused(refused);
    assert.equal(await neighbour, 'created');
    assert.equal(await store.write(createOnce(1n, 'key')), 'created');
    assert.equal(await store.write(createOnce(2n, 'neighbour')), 'createdReplayed');
  });
}

function testIdempotencyInTime(engine: TestEngine): void {
  test('a key holds for 24 hours from its first use, and is new after them', async (t) => {
    const { clock, open } = await prepare(t, engine);
    const { store } = await open();
    await store.write(createOnce(1n, 'key'));
    clock.now += 23 * HOUR_MS;
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    assert.equal(await store.write(createOnce(2n, 'key')), 'keyReused');
    clock.now += HOUR_MS - 1;
    assert.equal(await store.write(createOnce(1n, 'key')), 'createdReplayed');
    clock.now += 2;
    assert.equal(await store.write(createOnce(2n, 'key', 'of the next day')), 'created');
    assert.equal(await store.write(createOnce(1n, 'key')), 'keyReused');
    clock.now += DAY_MS - 1;
    assert.equal(await store.write(createOnce(2n, 'key', 'of the next day')), 'createdReplayed');
    assert.deepEqual(await namesOf(store), ['a plant', 'of the next day']);
  });

  test('after 24 hours the same plant is judged anew', async (t) => {
    const { clock, open } = await prepare(t, engine);
    const { store } = await open();
    await store.write(createOnce(1n, 'key'));
    clock.now += DAY_MS + 1;
    assert.equal(await store.write(createOnce(1n, 'key')), 'idTaken');
    assert.equal(await store.write(createOnce(1n, 'key')), 'idTakenReplayed');
  });

  test('keys survive closing and opening', async (t) => {
    const { clock, open } = await prepare(t, engine);
    const before = await open();
    await before.store.write(create(2n));
    await writeAll(before.store, [createOnce(1n, 'created'), createOnce(2n, 'taken')]);
    await before.close();
    clock.now += DAY_MS - 1;
    const { store } = await open();
    assert.equal(await store.write(createOnce(1n, 'created')), 'createdReplayed');
    assert.equal(await store.write(createOnce(2n, 'taken')), 'idTakenReplayed');
    assert.equal(await store.write(createOnce(3n, 'created')), 'keyReused');
    clock.now += 2;
    assert.equal(await store.write(createOnce(3n, 'created')), 'created');
  });

  test('keys are all deleted within a minute of their end, however many they are', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const { url, clock, open } = await prepare(t, engine);
    const { store } = await open();
    await writeAll(
      store,
      Array.from({ length: 4_500 }, (_, id) => createOnce(BigInt(id), `key ${id}`)),
    );
    assert.equal(await countKeys(url), 4_500);
    clock.now += DAY_MS + 1;
    t.mock.timers.tick(60_000);
    for (let turn = 0; turn < 100 && (await countKeys(url)) !== 0; turn += 1)
      assert.equal(await store.write(remove(-1n)), 'absent');
    assert.equal(await countKeys(url), 0);
  });
}

async function countKeys(url: string): Promise<number> {
  const bulk = await openBulk(url, connections);
  try {
    return await bulk.read(async ({ keys }) => {
      let count = 0;
      for await (const page of keys()) count += page.length;
      return count;
    });
  } finally {
    await bulk.close();
  }
}

function tokenOf(owner: string, fields: Partial<Token> = {}): Token {
  const token = newToken(mintSecret(), owner, { scopes, expiresAt: null, name: '' }, Date.UTC(2026, 0, 1));
  return { ...token, ...fields };
}

/** Digests as engines give them may be any kind of Uint8Array. */
function comparable(token: Token | undefined) {
  return token === undefined ? undefined : { ...token, digest: Buffer.from(token.digest).toString('hex') };
}

async function addTokens(store: Store, tokens: readonly Token[]): Promise<void> {
  const outcomes = await writeAll(
    store,
    tokens.map((token) => ({ kind: 'createToken', token })),
  );
  assert.deepEqual(new Set(outcomes), new Set(['done']));
}

async function findAgain(store: Store, { digest }: Token): Promise<Token> {
  const token = await store.findToken(digest);
  assert.ok(token !== undefined);
  return token;
}

function testTokens(engine: TestEngine): void {
  test('a token is found by its digest with every field it had', async (t) => {
    const store = await openOne(t, engine);
    const tokens = [
      tokenOf('alice'),
      tokenOf('a'.repeat(128), {
        scopes: ['plants:read'],
        expiresAt: Date.UTC(2026, 3, 1),
        name: 'phone 📱',
      }),
      tokenOf('bob', { scopes: ['plants:write'], name: ' "quoted"\n', createdAt: 1, expiresAt: 2 }),
      tokenOf('carol', { expiresAt: Date.UTC(9999, 11, 31), revokedAt: 3, lastUsedAt: 4 }),
    ];
    await addTokens(store, tokens);
    for (const token of tokens)
      assert.deepEqual(comparable(await store.findToken(token.digest)), comparable(token));
  });

  test('a digest that is not exactly that of a token finds nothing', async (t) => {
    const store = await openOne(t, engine);
    const token = tokenOf('alice');
    await addTokens(store, [token]);
    const changed = Buffer.from(token.digest);
    changed.writeUInt8(changed.readUInt8(31) ^ 1, 31);
    assert.equal(await store.findToken(changed), undefined);
    assert.equal(await store.findToken(token.digest.subarray(0, 31)), undefined);
    assert.equal(await store.findToken(new Uint8Array(32)), undefined);
  });

  test('tokens are listed from the oldest to the newest, and by id where they are of one time', async (t) => {
    const store = await openOne(t, engine);
    const tokens = [
      tokenOf('d', { id: 'aaaaaaaaaaaa', createdAt: 2_000 }),
      tokenOf('c', { id: 'Zaaaaaaaaaaa', createdAt: 2_000 }),
      tokenOf('b', { id: '9aaaaaaaaaaa', createdAt: 2_000 }),
      tokenOf('e', { id: 'aaaaaaaaaaaB', createdAt: 2_001 }),
      tokenOf('a', { id: 'zzzzzzzzzzzz', createdAt: 1_999 }),
    ];
    await addTokens(store, tokens);
    const listed = await store.listTokens();
    assert.deepEqual(
      listed.map(({ owner }) => owner),
      ['a', 'b', 'c', 'd', 'e'],
    );
    const [, , , , oldest] = tokens;
    assert.deepEqual(comparable(listed[0]), comparable(oldest));
  });

  test('a new store has no tokens', async (t) => {
    const store = await openOne(t, engine);
    assert.deepEqual(await store.listTokens(), []);
  });

  test('a token whose id or digest is taken is refused alone', async (t) => {
    const store = await openOne(t, engine);
    const token = tokenOf('alice');
    await addTokens(store, [token]);
    const sameId = store.write({ kind: 'createToken', token: tokenOf('bob', { id: token.id }) });
    const plant = store.write(create(1n));
    const sameDigest = store.write({ kind: 'createToken', token: tokenOf('bob', { digest: token.digest }) });
    await assertRefused(sameId, sameDigest);
    assert.equal(await plant, 'created');
    assert.deepEqual((await store.listTokens()).map(comparable), [comparable(token)]);
  });
}

function testTokenLife(engine: TestEngine): void {
  test('a token is revoked for good, at the first time it was', async (t) => {
    const { open } = await prepare(t, engine);
    const [{ store }, other] = [await open(), await open()];
    const [token, untouched] = [tokenOf('alice'), tokenOf('alice')];
    await addTokens(store, [token, untouched]);
    assert.equal(await store.write({ kind: 'revokeToken', id: token.id, at: 5_000 }), 'done');
    assert.equal((await findAgain(other.store, token)).revokedAt, 5_000);
    assert.equal(await store.write({ kind: 'revokeToken', id: token.id, at: 6_000 }), 'done');
    assert.deepEqual(comparable(await findAgain(store, token)), comparable({ ...token, revokedAt: 5_000 }));
    assert.deepEqual(comparable(await findAgain(store, untouched)), comparable(untouched));
  });

  test('a token that does not exist can be neither revoked nor used', async (t) => {
    const store = await openOne(t, engine);
    const { id } = tokenOf('alice');
    assert.equal(await store.write({ kind: 'revokeToken', id, at: 1 }), 'absent');
    assert.equal(await store.write({ kind: 'recordTokenUse', id, at: 1 }), 'absent');
  });

  test('the last use of a token is recorded at most once a minute, and never goes back', async (t) => {
    const store = await openOne(t, engine);
    const [token, untouched] = [tokenOf('alice'), tokenOf('alice')];
    await addTokens(store, [token, untouched]);
    const use = async (at: number): Promise<number | null> => {
      await store.write({ kind: 'recordTokenUse', id: token.id, at });
      return (await findAgain(store, token)).lastUsedAt;
    };
    const start = Date.UTC(2026, 0, 1);
    assert.equal(await use(start), start);
    assert.equal(await use(start + 1), start);
    assert.equal(await use(start + LAST_USE_STEP_MS - 1), start);
    assert.equal(await use(start + LAST_USE_STEP_MS), start + LAST_USE_STEP_MS);
    assert.equal(await use(start), start + LAST_USE_STEP_MS);
    assert.deepEqual(comparable(await findAgain(store, untouched)), comparable(untouched));
  });

  test('tokens survive closing and opening', async (t) => {
    const { open } = await prepare(t, engine);
    const before = await open();
    const token = tokenOf('alice', { name: 'kept' });
    await addTokens(before.store, [token]);
    await before.store.write({ kind: 'revokeToken', id: token.id, at: 5_000 });
    await before.store.write({ kind: 'recordTokenUse', id: token.id, at: 4_000 });
    await before.close();
    const { store } = await open();
    const kept = { ...token, revokedAt: 5_000, lastUsedAt: 4_000 };
    assert.deepEqual((await store.listTokens()).map(comparable), [comparable(kept)]);
  });
}

function testLife(engine: TestEngine): void {
  test('closing commits what was submitted before, and refuses what comes later', async (t) => {
    const { open } = await prepare(t, engine);
    const first = await open();
    const submitted = writeAll(
      first.store,
      Array.from({ length: 500 }, (_, index) => create(BigInt(index))),
    );
    const closed = first.close();
    await assert.rejects(first.store.write(create(1_000n)), StoreUnavailable);
    assert.equal(countOf(await submitted, 'created'), 500);
    await closed;
    await assert.rejects(first.store.write(create(1_001n)), StoreUnavailable);
    const { store } = await open();
    const { count, last } = await store.listPlants('alice', EVERY_ID, 1_000);
    assert.deepEqual([count, last], [500, 499n]);
  });

  test('one store closes without harm to another on the same URL', async (t) => {
    const { open } = await prepare(t, engine);
    const [first, second] = [await open(), await open()];
    await first.store.write(create(1n));
    await first.close();
    assert.equal(await second.store.write(create(2n)), 'created');
    assert.deepEqual(await namesOf(second.store), ['plant 1', 'plant 2']);
  });

  test('two stores can be opened at the same moment on a new URL', async (t) => {
    const { open } = await prepare(t, engine);
    const [first, second] = await Promise.all([open(), open()]);
    assert.equal(await first.store.write(create(1n)), 'created');
    assert.equal(await second.store.write(create(1n)), 'idTaken');
  });

  test('a fault beside the store is not taken for one of it, and later writes go on', async (t) => {
    const { open, clock } = await prepare(t, engine);
    const { store } = await open();
    clock.fault = new Error('the clock stands still');
    await assert.rejects(store.write(createOnce(1n, 'one')), (error: unknown) => error === clock.fault);
    delete clock.fault;
    assert.equal(await store.write(createOnce(1n, 'one')), 'created');
  });

  test('a store that answers can be pinged', async (t) => {
    const store = await openOne(t, engine);
    assert.equal(await store.ping(), undefined);
  });
}
