import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { INT64_MAX, INT64_MIN, type Plant } from '../../../src/plant.ts';
import type { IdRange, PageLimit, PlantPage, Store } from '../../../src/store/store.ts';
import type { TestEngine } from '../../support/engines.ts';
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
  upTo,
  writeAll,
} from '../../support/store-setup.ts';

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

  test('a delete removes one plant, or none when the id is absent', async (t) => {
    const store = await openOne(t, engine);
    await createAll(store, [1n, 2n, 3n]);
    assert.equal(await store.write(remove(4n)), 'absent');
    assert.equal(await store.write(remove(2n)), 'deleted');
    assert.deepEqual(await namesOf(store), ['plant 1', 'plant 3']);
  });

  test('ids that are equal as doubles are separate plants', async (t) => {
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

  test('owners are isolated: ids, lists and deletes', async (t) => {
    const store = await openOne(t, engine);
    const owners = ['alice', 'Alice', 'alice.', 'bob'];
    for (const owner of owners)
      assert.equal(await store.write(create(1n, { owner, name: owner })), 'created');
    assert.equal(await store.write(remove(1n, 'carol')), 'absent');
    assert.equal(await store.write(remove(1n, 'bob')), 'deleted');
    assert.equal(await store.write(remove(1n, 'bob')), 'absent');
    for (const owner of owners) {
      assert.deepEqual(await namesOf(store, owner), owner === 'bob' ? [] : [owner]);
    }
  });

  test('a read sees every acknowledged write, in every store on the URL', async (t) => {
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
    for (const plants of [1, 10])
      assert.deepEqual(await store.listPlants('alice', EVERY_ID, upTo(plants)), { json: '[]', bytes: 2 });
  });

  test('plants are sorted by the number of their id', async (t) => {
    const store = await openOne(t, engine);
    for (const id of [10n, -9n, 2n, -10n, 9n, 100n, 0n]) await store.write(create(id));
    const expected = [-10n, -9n, 0n, 2n, 9n, 10n, 100n].map((id) => `plant ${id}`);
    assert.deepEqual(await namesOf(store), expected);
  });

  test('a page that plants follow has its count and its last id; others have neither', async (t) => {
    const store = await openOne(t, engine);
    await createAll(store, [10n, 20n, 30n]);
    const page = async (from: bigint, to: bigint, limit: number) => {
      const found = await store.listPlants('alice', { from, to }, upTo(limit));
      return [parsePlants(found).length, found.cut];
    };
    assert.deepEqual(await page(INT64_MIN, INT64_MAX, 1), [1, { count: 1, last: 10n }]);
    assert.deepEqual(await page(INT64_MIN, INT64_MAX, 2), [2, { count: 2, last: 20n }]);
    for (const limit of [3, 4]) assert.deepEqual(await page(INT64_MIN, INT64_MAX, limit), [3, undefined]);
    for (const limit of [1, 4]) assert.deepEqual(await page(21n, INT64_MAX, limit), [1, undefined]);
    for (const limit of [1, 4]) assert.deepEqual(await page(31n, INT64_MAX, limit), [0, undefined]);
  });

  test('a range includes both ends, and plants outside do not count as more', async (t) => {
    const store = await openOne(t, engine);
    const ids = [INT64_MIN, 10n, 20n, 30n, INT64_MAX];
    await createAll(store, ids);
    const page = async (from: bigint, to: bigint, limit: number) => {
      const found = await store.listPlants('alice', { from, to }, upTo(limit));
      return [parsePlants(found).map(({ name }) => name), found.cut !== undefined];
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
    const json = '[{"name":"plant 1"}]';
    const page = { json, bytes: json.length };
    assert.deepEqual(await store.listPlants('alice', EVERY_ID, upTo(1)), page);
  });

  test('pages that are read at once are the same as pages that are read one by one', async (t) => {
    const store = await openOne(t, engine);
    const owners = ['alice', 'bob', "o'hara", 'dave'];
    const writes = owners.slice(0, 3).flatMap((owner, place) =>
      Array.from({ length: 90 }, (_, id) =>
        create(BigInt(id * (place + 1)) - 40n, {
          owner,
          name: `${owner} ${'"'.repeat(id * 40)}`,
          tag: id % 3 ? null : 'é',
        }),
      ),
    );
    assert.deepEqual(new Set(await writeAll(store, writes)), new Set(['created']));
    const wanted = [1, 2, 20, 63, 64, 65, 200].flatMap((plants) =>
      [EVERY_ID, { from: -3n, to: 17n }, { from: 20n, to: INT64_MAX }].flatMap((range) =>
        [1_000, 20_000, 64 * 1_024].flatMap((bytes) =>
          owners.map((owner) => ({ owner, range, limit: { plants, bytes } })),
        ),
      ),
    );
    const list = ({ owner, range, limit }: (typeof wanted)[number]) => store.listPlants(owner, range, limit);
    const atOnce = await Promise.all(wanted.map(list));
    for (const [place, one] of wanted.entries()) assert.deepEqual(await list(one), atOnce[place]);
  });

  test('pages of any size, each after the last id, join to the whole list', async (t) => {
    const store = await openOne(t, engine);
    const ids = Array.from({ length: 100 }, (_, index) => BigInt(index - 50) * 1_000_003n);
    await createAll(store, shuffle(ids));
    const whole = ids.map((id) => `plant ${id}`);
    for (const size of [1, 7, 50, 99, 100, 101, 100_000]) {
      const names: string[] = [];
      for (let from = INT64_MIN, more = true; more; ) {
        const page = await store.listPlants('alice', { from, to: INT64_MAX }, upTo(size));
        names.push(...parsePlants(page).map(({ name }) => name));
        more = page.cut !== undefined;
        if (page.cut !== undefined) from = page.cut.last + 1n;
      }
      assert.deepEqual(names, whole, `pages of ${size}`);
    }
  });
}

/** Texts that detect cutting, case folding, normalization, trimming and escapes that differ from JSON.stringify. */
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
    const page = await store.listPlants('alice', EVERY_ID, upTo(plants.length));
    assert.equal(page.bytes, Buffer.byteLength(page.json));
    return page;
  }

  test('is equal to that of JSON.stringify, byte for byte, for any name', async (t) => {
    const plants = hostileTexts().map((name) => ({ name }));
    const page = await listed(await openOne(t, engine), plants);
    assert.equal(page.json, JSON.stringify(plants));
  });

  test('is equal to that of JSON.stringify, byte for byte, for any tag', async (t) => {
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

export function testPageBytes(engine: TestEngine): void {
  const renderedAs = (plants: readonly Plant[]): string => JSON.stringify(plants);

  /** Reads all pages; returns the counts of plants and checks each page against the limit. */
  async function pagesOf(store: Store, limit: PageLimit): Promise<{ counts: number[]; json: string }> {
    const counts: number[] = [];
    const members: string[] = [];
    for (let from = INT64_MIN, more = true; more; ) {
      const range = { from, to: INT64_MAX };
      const page = await store.listPlants('alice', range, limit);
      assert.equal(page.bytes, Buffer.byteLength(page.json));
      const { json, cut } = page.largeBytes === undefined ? page : await largePage(store, range, page);
      const count = parsePlants({ json }).length;
      assert.ok(count === 1 || Buffer.byteLength(json) <= limit.bytes, `${count} plants`);
      assert.equal(cut?.count ?? count, count);
      counts.push(count);
      members.push(json.slice(1, -1));
      more = cut !== undefined;
      if (cut !== undefined) from = cut.last + 1n;
    }
    return { counts, json: `[${members.join(',')}]` };
  }

  /** Reads the plant that did not fit into a page, as a page. */
  async function largePage(
    store: Store,
    range: IdRange,
    empty: PlantPage,
  ): Promise<Omit<PlantPage, 'bytes'>> {
    const { largeBytes } = empty;
    assert.deepEqual(empty, { json: '[]', bytes: 2, largeBytes });
    const plant = (await store.readLargePlant('alice', range)) ?? assert.fail();
    assert.ok(plant.json.length >= Number(largeBytes));
    const json = `[${Buffer.from(plant.json)}]`;
    return plant.more ? { json, cut: { last: plant.id, count: 1 } } : { json };
  }

  async function storeOf(t: TestContext, plants: readonly Plant[]): Promise<Store> {
    const store = await openOne(t, engine);
    const writes = plants.map(({ name, tag }, id) => create(BigInt(id), { name, tag: tag ?? null }));
    await writeAll(store, writes);
    return store;
  }

  test('a page ends below the limit of bytes, and says that more follow', async (t) => {
    const plants = Array.from({ length: 10 }, (_, index) => ({ name: `plant ${index}` }));
    const store = await storeOf(t, plants);
    const three = Buffer.byteLength(renderedAs(plants.slice(0, 3)));
    for (const [bytes, counts] of [
      [three, [3, 3, 3, 1]],
      [three - 1, [2, 2, 2, 2, 2]],
      [three + 1, [3, 3, 3, 1]],
      [1, Array.from({ length: 10 }, () => 1)],
      [1_000_000, [10]],
    ] as const)
      assert.deepEqual(await pagesOf(store, { plants: 100, bytes }), { counts, json: renderedAs(plants) });
  });

  test('a page ends at the limit of plants or of bytes, whichever is first', async (t) => {
    const plants = Array.from({ length: 9 }, (_, index) => ({
      name: `${index}`.repeat(index < 4 ? 1 : 40_000),
    }));
    const store = await storeOf(t, plants);
    const found = await pagesOf(store, { plants: 3, bytes: 100_000 });
    assert.deepEqual(found, { counts: [3, 3, 2, 1], json: renderedAs(plants) });
  });

  test('escapes count with their bytes in JSON', async (t) => {
    const plants = Array.from({ length: 20 }, () => ({
      name: '\u0001'.repeat(1_000),
      tag: '🌱"'.repeat(10),
    }));
    const store = await storeOf(t, plants);
    for (const bytes of [6_500, 13_000, 65_536, 70_000]) {
      const { counts, json } = await pagesOf(store, { plants: 64, bytes });
      const fitting = Math.floor((bytes - 1) / (Buffer.byteLength(JSON.stringify(plants[0])) + 1));
      assert.equal(counts[0], fitting);
      assert.equal(json, renderedAs(plants));
    }
  });

  test('a plant of any size can be read alone, with its fields in JSON', async (t) => {
    const plants = [{ name: 'é"'.repeat(20_000) }, { name: '', tag: 'x'.repeat(20_000) }, { name: 'small' }];
    const store = await storeOf(t, plants);
    for (const [id, plant] of plants.entries()) {
      const read = await store.readLargePlant('alice', { from: BigInt(id), to: INT64_MAX });
      assert.deepEqual(
        { ...read, json: String(Buffer.from(read?.json ?? [])) },
        {
          json: JSON.stringify(plant),
          id: BigInt(id),
          more: id < 2,
        },
      );
      assert.equal(read?.json.buffer.byteLength, read?.json.length, 'memory that the caller can free');
    }
    assert.equal(await store.readLargePlant('alice', { from: 3n, to: INT64_MAX }), undefined);
    assert.equal(await store.readLargePlant('bob', EVERY_ID), undefined);
  });

  test('a large plant can be created once, deleted, and created again', async (t) => {
    const store = await openOne(t, engine);
    const large = (letter: string) => create(7n, { name: letter.repeat(100_000) });
    assert.equal(await store.write(large('a')), 'created');
    assert.equal(await store.write(large('b')), 'idTaken');
    assert.equal(await store.write(create(7n)), 'idTaken');
    assert.equal(await store.write(remove(7n)), 'deleted');
    assert.equal(await store.readLargePlant('alice', EVERY_ID), undefined);
    assert.equal(await store.write(large('c')), 'created');
    const read = await store.readLargePlant('alice', EVERY_ID);
    assert.equal(String(Buffer.from(read?.json ?? [])), JSON.stringify({ name: 'c'.repeat(100_000) }));
  });

  test('a plant larger than a page is a page alone, at any position', async (t) => {
    const sizes = [10, 300_000, 10, 10, 70_000, 200_000, 65_500, 10, 65_536];
    const plants = sizes.map((size, index) => ({ name: `${index}`.repeat(size), tag: '"'.repeat(size % 7) }));
    const store = await storeOf(t, plants);
    const { counts, json } = await pagesOf(store, { plants: 64, bytes: 65_536 });
    assert.deepEqual(counts, [1, 1, 2, 1, 1, 1, 1, 1]);
    assert.equal(json, renderedAs(plants));
  });

  test('a page cut by the limit of bytes is not used for another limit', async (t) => {
    const plants = Array.from({ length: 8 }, (_, index) => ({ name: `plant ${index}` }));
    const store = await storeOf(t, plants);
    for (const bytes of [60, 1_000, 60, 90])
      assert.equal((await pagesOf(store, { plants: 8, bytes })).json, renderedAs(plants), `${bytes}`);
  });
}
