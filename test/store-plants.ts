import assert from 'node:assert/strict';
import { test } from 'node:test';
import { INT64_MAX, INT64_MIN, type Plant } from '../src/plant.ts';
import type { IdRange, PlantPage, Store } from '../src/store.ts';
import type { TestEngine } from './engines.ts';
import {
  create,
  createAll,
  EVERY_ID,
  namesOf,
  openOne,
  parsePlants,
  prepare,
  remove,
  shuffle,
  writeAll,
  writeMany,
} from './store-setting.ts';

export function testPlants(engine: TestEngine): void {
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

export function testPages(engine: TestEngine): void {
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

export function testJson(engine: TestEngine): void {
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

export function testCounting(engine: TestEngine): void {
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
