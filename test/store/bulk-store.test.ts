import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import type { PlantRow } from '../../src/plant.ts';
import { INT64_MAX, INT64_MIN } from '../../src/plant.ts';
import {
  type Bulk,
  type Contents,
  type KeyRow,
  StoreNotEmpty,
  storeParts,
} from '../../src/store/bulk-store.ts';
import { migrateStore, openBulk, openStore, rejectUnlessFillable } from '../../src/store/open-engine.ts';
import { CHARACTERS_IN_PAGE, ROWS_IN_PAGE } from '../../src/store/rows.ts';
import { mintSecret, newToken, scopes } from '../../src/token.ts';
import { connections, engines, type TestEngine } from '../support/engines.ts';
import { plantRow } from '../support/plants.ts';
import { upTo } from '../support/store-setup.ts';

const LARGE_NAME = 'x'.repeat(CHARACTERS_IN_PAGE / 2);

const NOW = Date.UTC(2026, 0, 1);

/** A new store, opened as Bulk; it closes before the engine removes it. */
async function prepare(t: TestContext, engine: TestEngine): Promise<{ url: string; bulk: Bulk }> {
  const opened: Bulk[] = [];
  t.after(() => Promise.all(opened.map((bulk) => bulk.close())));
  const url = await engine.freshUrl(t);
  await migrateStore(url);
  const bulk = await openBulk(url, connections);
  opened.push(bulk);
  return { url, bulk };
}

function plant(id: bigint, name = `plant ${id}`, owner = 'alice', tag: string | null = null): PlantRow {
  return plantRow(id, { owner, name, tag });
}

function plants(count: number, owner = 'alice'): PlantRow[] {
  return Array.from({ length: count }, (_, index) => plant(BigInt(index), `plant ${index}`, owner));
}

function key(name: string, owner = 'alice'): KeyRow {
  return { owner, key: name, digest: Buffer.alloc(32, name), outcome: 'created', firstUsedAt: NOW };
}

async function gather<T>(pages: AsyncIterable<readonly T[]>): Promise<T[]> {
  const rows: T[] = [];
  for await (const page of pages) rows.push(...page);
  return rows;
}

function plantsOf(bulk: Bulk, owner?: string): Promise<PlantRow[]> {
  return bulk.read(['plants'], (contents) => gather(contents.plants(owner)));
}

async function everything(contents: Contents) {
  return {
    count: await contents.countPlants(),
    plants: await gather(contents.plants()),
    tokens: await gather(contents.tokens()),
    keys: await gather(contents.keys()),
  };
}

for (const engine of engines) {
  describe(`a store in bulk on ${engine.name}`, () => {
    test('between the pages of a long read, timers run', async (t) => {
      const { bulk } = await prepare(t, engine);
      await bulk.savePlants(plants(5 * ROWS_IN_PAGE), 'fail');
      let iterations = 0;
      const timer = setInterval(() => {
        iterations += 1;
      }, 0);
      t.after(() => clearInterval(timer));
      await bulk.read(['plants'], async (contents) => {
        let pages = 0;
        for await (const page of contents.plants()) {
          pages += 1;
          const until = performance.now() + 5;
          while (performance.now() < until) assert.ok(page.length > 0);
        }
        assert.ok(iterations >= pages - 1, `${iterations} of ${pages}`);
      });
    });

    test('saved plants are read by owner and id; ids are exact, and absent and empty tags differ', async (t) => {
      const { bulk } = await prepare(t, engine);
      const saved = [
        plant(INT64_MAX, 'last', 'alice', ''),
        plant(9_007_199_254_740_993n, 'odd', 'alice', 'tag'),
        plant(9_007_199_254_740_992n, ''),
        plant(INT64_MIN, 'first'),
        plant(0n, 'of bob', 'bob'),
      ];
      assert.deepEqual(await bulk.savePlants(saved, 'fail'), []);
      assert.deepEqual(await plantsOf(bulk), [saved[3], saved[2], saved[1], saved[0], saved[4]]);
      assert.deepEqual(await plantsOf(bulk, 'bob'), [saved[4]]);
      assert.deepEqual(await plantsOf(bulk, 'carol'), []);
      assert.deepEqual(await bulk.read(['plants'], (contents) => contents.countPlants('alice')), 4);
    });

    test('large plants after many small ones → pages of limited length', async (t) => {
      const { bulk } = await prepare(t, engine);
      const large = Array.from({ length: 12 }, (_, index) => plant(10_000n + BigInt(index), LARGE_NAME));
      const saved = [...plants(2_000), ...large, plant(20_000n, 'last')];
      await bulk.savePlants(saved, 'fail');
      for (const owner of ['alice', undefined]) {
        const lengths = await bulk.read(['plants'], async (contents) => {
          const found: number[] = [];
          const ids: bigint[] = [];
          for await (const page of contents.plants(owner)) {
            found.push(page.reduce((sum, { name }) => sum + name.length, 0));
            ids.push(...page.map(({ id }) => id));
          }
          assert.deepEqual(
            ids,
            saved.map(({ id }) => id),
          );
          return found;
        });
        assert.ok(Math.max(...lengths) <= CHARACTERS_IN_PAGE + LARGE_NAME.length, lengths.join());
      }
    });

    test('fail: a taken id → nothing of the batch is saved', async (t) => {
      const { bulk } = await prepare(t, engine);
      await bulk.savePlants([plant(2n)], 'fail');
      const batch = [plant(1n), plant(2n, 'other'), plant(3n), plant(3n, 'again')];
      assert.deepEqual(await bulk.savePlants(batch, 'fail'), [1, 3]);
      assert.deepEqual(await plantsOf(bulk), [plant(2n)]);
    });

    test('skip: stored plants stay; of duplicates in a batch the first is saved', async (t) => {
      const { bulk } = await prepare(t, engine);
      await bulk.savePlants([plant(2n)], 'fail');
      const batch = [plant(3n), plant(2n, 'other'), plant(1n), plant(3n, 'again')];
      assert.deepEqual(await bulk.savePlants(batch, 'skip'), [1, 3]);
      assert.deepEqual(await plantsOf(bulk), [plant(1n), plant(2n), plant(3n)]);
    });

    test('replace: overwrites name and tag; of duplicates in a batch the last is saved', async (t) => {
      const { bulk } = await prepare(t, engine);
      await bulk.savePlants([plant(2n, 'old', 'alice', 'tag'), plant(2n, 'of bob', 'bob')], 'fail');
      const batch = [plant(3n), plant(2n, 'new'), plant(3n, 'again', 'alice', 'tag')];
      assert.deepEqual(await bulk.savePlants(batch, 'replace'), [1, 2]);
      assert.deepEqual(await plantsOf(bulk), [
        plant(2n, 'new'),
        plant(3n, 'again', 'alice', 'tag'),
        plant(2n, 'of bob', 'bob'),
      ]);
    });

    test('replace: a large plant becomes small, and a small one large', async (t) => {
      const { bulk } = await prepare(t, engine);
      const large = (id: bigint) => plant(id, 'é'.repeat(50_000), 'alice', '"'.repeat(50_000));
      await bulk.savePlants([large(1n), plant(2n)], 'fail');
      assert.deepEqual(await plantsOf(bulk), [large(1n), plant(2n)]);
      assert.deepEqual(await bulk.savePlants([plant(1n), large(2n)], 'replace'), [0, 1]);
      assert.deepEqual(await plantsOf(bulk), [plant(1n), large(2n)]);
      assert.deepEqual(await bulk.inspect(), { damages: [] });
    });

    test('the service lists the saved plants', async (t) => {
      const { url, bulk } = await prepare(t, engine);
      await bulk.savePlants([plant(1n, 'a "plant"', 'alice', '')], 'fail');
      const store = await openStore(url, { now: () => NOW, onFatal: assert.fail, connections });
      try {
        const page = await store.listPlants('alice', { from: INT64_MIN, to: INT64_MAX }, upTo(10));
        assert.equal(page.json, '[{"name":"a \\"plant\\"","tag":""}]');
      } finally {
        await store.close();
      }
    });

    test('read: a snapshot, over any number of pages', async (t) => {
      const { url, bulk } = await prepare(t, engine);
      const all = plants(2_500);
      await bulk.savePlants(all, 'fail');
      const other = await openBulk(url, connections);
      try {
        const seen = await bulk.read(['plants'], async (contents) => {
          assert.equal(await contents.countPlants(), all.length);
          await other.savePlants([plant(9_999n), plant(1n, 'changed')], 'replace');
          return gather(contents.plants());
        });
        assert.deepEqual(seen, all);
        assert.equal((await plantsOf(bulk)).length, all.length + 1);
      } finally {
        await other.close();
      }
    });

    test('read: after an interrupted read the next one works', async (t) => {
      const { bulk } = await prepare(t, engine);
      await bulk.savePlants(plants(1_500), 'fail');
      const broken = bulk.read(['plants'], async (contents) => {
        for await (const page of contents.plants()) throw new Error(`enough after ${page.length}`);
      });
      await assert.rejects(broken, /enough after/);
      assert.equal((await plantsOf(bulk)).length, 1_500);
    });

    test('fill: plants, tokens and keys are read back unchanged', async (t) => {
      const { bulk } = await prepare(t, engine);
      const token = newToken(mintSecret(), 'alice', { scopes, expiresAt: null, name: 'a' }, NOW);
      const other = { ...token, id: 'another00001', digest: Buffer.alloc(32, 7), createdAt: NOW + 1 };
      const tokens = [
        token,
        {
          ...other,
          scopes: ['plants:read'] as const,
          expiresAt: NOW + 5,
          revokedAt: NOW + 2,
          lastUsedAt: NOW + 3,
        },
      ];
      const rows = [...plants(1_200), plant(1n, 'of bob', 'bob')];
      const keys = [key('one'), { ...key('two', 'bob'), outcome: 'idTaken' }];
      const inside = await bulk.fill(async (filling) => {
        await filling.addPlants(rows);
        await filling.addTokens(tokens);
        await filling.addKeys(keys);
        return everything(filling);
      });
      const after = await bulk.read(storeParts, everything);
      assert.deepEqual(after, inside);
      assert.equal(after.count, rows.length);
      assert.deepEqual(after.plants, rows);
      assert.deepEqual(
        after.tokens.map((one) => ({ ...one, digest: Buffer.from(one.digest) })),
        tokens.map((one) => ({ ...one, digest: Buffer.from(one.digest) })),
      );
      const sorted = after.keys.toSorted((a, b) => (a.key < b.key ? -1 : 1));
      assert.deepEqual(
        sorted.map((one) => ({ ...one, digest: Buffer.from(one.digest) })),
        keys,
      );
    });

    test('fill: an error leaves the store empty', async (t) => {
      const { bulk } = await prepare(t, engine);
      const failed = bulk.fill(async (filling) => {
        await filling.addPlants(plants(10));
        throw new Error('half way');
      });
      await assert.rejects(failed, /half way/);
      assert.deepEqual(await plantsOf(bulk), []);
      await bulk.fill((filling) => filling.addPlants(plants(3)));
      assert.equal((await plantsOf(bulk)).length, 3);
    });

    test('fill: a store with a plant, a token or a key → StoreNotEmpty', async (t) => {
      const token = newToken(mintSecret(), 'alice', { scopes, expiresAt: null, name: '' }, NOW);
      const contents = [
        (bulk: Bulk) => bulk.fill((filling) => filling.addPlants([plant(1n)])),
        (bulk: Bulk) => bulk.fill((filling) => filling.addTokens([token])),
        (bulk: Bulk) => bulk.fill((filling) => filling.addKeys([key('one')])),
      ];
      for (const put of contents) {
        const { url, bulk } = await prepare(t, engine);
        await rejectUnlessFillable(url);
        await put(bulk);
        await assert.rejects(
          bulk.fill(() => assert.fail('the work was begun')),
          StoreNotEmpty,
        );
        await assert.rejects(rejectUnlessFillable(url), StoreNotEmpty);
      }
    });

    test('inspect: no faults in a sound store; in an empty database there is none yet', async (t) => {
      const { bulk } = await prepare(t, engine);
      assert.deepEqual(await bulk.inspect(), { damages: [] });
      const empty = await engine.freshUrl(t);
      const bare = await openBulk(empty, connections);
      try {
        await assert.rejects(bare.inspect(), { name: 'StoreNotOpened', message: /there is no store/ });
      } finally {
        await bare.close();
      }
    });
  });
}
