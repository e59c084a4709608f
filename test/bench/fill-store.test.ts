import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { openFiller, ownerName, plantsOf } from '../../bench/contenders/fill-store.ts';
import { createIds } from '../../bench/load/ids.ts';
import { createAtRandom, createInOrder, NEW_PLANT } from '../../bench/workload.ts';
import { migrateStore, openStore } from '../../src/store/open-engine.ts';
import { digestSecret, mintSecret, newToken, scopes } from '../../src/token.ts';
import { connections, engines, rowsOf } from '../support/engines.ts';

const NOW = Date.UTC(2026, 0, 1);
const countOf = async (url: string, condition: string): Promise<number> => {
  const [row] = await rowsOf(url, `SELECT count(*) AS n FROM plants WHERE ${condition}`);
  return Number(row?.n);
};

for (const engine of engines) {
  describe(`filler of the bench, ${engine.name}`, () => {
    test('fills a store for each owner in turn, with ids that no run uses', async (t) => {
      const url = await engine.freshUrl(t);
      await migrateStore(url);
      await using filler = await openFiller(url);
      await filler.fill(1_000, 4);
      await filler.settle();
      for (const number of [0, 1, 2, 3])
        assert.equal(
          await countOf(url, `owner = '${ownerName(number)}' AND name = '${NEW_PLANT.name}'`),
          250,
        );
      const nextId = createIds(createAtRandom.ids(1));
      assert.equal(await countOf(url, `id % 1024 = ${nextId() % 1_024}`), 0);
    });

    test('adds and removes the plants of a run', async (t) => {
      const url = await engine.freshUrl(t);
      await migrateStore(url);
      await using filler = await openFiller(url);
      const plants = plantsOf(createInOrder.ids(1), 10, [0, 1, 2].map(ownerName));
      await filler.addPlants(plants);
      await filler.addPlants(plants.slice(5));
      assert.equal(await countOf(url, 'true'), 10);
      await filler.removePlants([...plants.slice(1), { owner: ownerName(0), id: 1 }]);
      const [first] = plants;
      assert.equal(await countOf(url, `owner = '${first?.owner}' AND id = ${first?.id}`), 1);
      assert.equal(await countOf(url, 'true'), 1);
    });

    test('adds tokens that the store finds', async (t) => {
      const url = await engine.freshUrl(t);
      await migrateStore(url);
      await using filler = await openFiller(url);
      const secrets = [mintSecret(), mintSecret()];
      const fields = { scopes, expiresAt: null, name: 'bench' };
      const tokens = secrets.map((secret, number) => newToken(secret, ownerName(number), fields, NOW));
      await filler.addTokens(tokens);
      const onFatal = (error: Error): never => {
        throw error;
      };
      const store = await openStore(url, { now: Date.now, onFatal, connections });
      t.after(() => store.close());
      const found = await Promise.all(secrets.map((secret) => store.findToken(digestSecret(secret))));
      assert.deepEqual(
        found.map((token) => [token?.id, token?.owner, token?.scopes]),
        tokens.map(({ id, owner }) => [id, owner, scopes]),
      );
    });
  });
}
