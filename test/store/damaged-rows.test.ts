import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { type TestContext, test } from 'node:test';
import { openBulk } from '../../src/store/open-engine.ts';
import { rowsOfPrimary } from '../../src/store/postgres/host/primary-check.ts';
import { createPageReader } from '../../src/store/postgres/pages.ts';
import { type Store, StoreDamaged, StoreUnavailable } from '../../src/store/store.ts';
import { OperatorError } from '../../src/thrown-errors.ts';
import { connections, execute, postgres, sqlite, type TestEngine } from '../support/engines.ts';
import { create, createOnce, EVERY_ID, parsePlants, prepare, upTo } from '../support/store-setup.ts';

/** A store on one engine, after SQL that the service never runs has changed its rows. */
async function openChanged(t: TestContext, engine: TestEngine, sql: string) {
  const { url, open } = await prepare(t, engine);
  const { store } = await open();
  assert.equal(await store.write(create(1n, { name: 'x'.repeat(20_000) })), 'created');
  assert.equal(await store.write(createOnce(2n, 'one')), 'created');
  await execute(url, sql);
  return { store, url };
}

function isDamage(first: bigint) {
  return (error: unknown): boolean =>
    error instanceof StoreDamaged &&
    error.message.startsWith(`a page of plants cannot be read as JSON; it begins at id ${first}`);
}

async function assertReadsOthers(store: Store): Promise<void> {
  const page = await store.listPlants('alice', { ...EVERY_ID, from: 2n }, upTo(10));
  assert.deepEqual(parsePlants(page), [{ name: 'a plant' }]);
}

test('SQLite: the JSON of a large plant is missing → StoreDamaged, and other plants are read', async (t) => {
  const { store } = await openChanged(t, sqlite, 'DELETE FROM large_plants');
  await assert.rejects(store.listPlants('alice', { ...EVERY_ID, from: 0n }, upTo(10)), isDamage(0n));
  await assert.rejects(store.readLargePlant('alice', { ...EVERY_ID, from: 1n }), isDamage(1n));
  await assertReadsOthers(store);
});

test('SQLite: a plant out of its order → a page still has as many plants as it says', async (t) => {
  const { url, open } = await prepare(t, sqlite);
  const { store, close } = await open();
  for (const id of [10n, 20n, 30n, 40n, 50n, 60n])
    assert.equal(await store.write(create(id, { name: `plant${id}` })), 'created');
  await close();
  const file = url.slice('sqlite:'.length);
  const bytes = await readFile(file);
  // The id, one byte, comes before the name.
  const at = bytes.indexOf('plant30') - 1;
  assert.equal(bytes[at], 30);
  bytes[at] = 99;
  await writeFile(file, bytes);
  const damaged = await open();
  for (const limit of [3, 4]) {
    const page = await damaged.store.listPlants('alice', EVERY_ID, upTo(limit));
    assert.equal(parsePlants(page).length, page.cut?.count ?? limit);
  }
});

test('PostgreSQL: a large plant has no name → StoreDamaged, and other plants are read', async (t) => {
  const sql = 'ALTER TABLE plants ALTER name DROP NOT NULL; UPDATE plants SET name = NULL WHERE id = 1';
  const { store } = await openChanged(t, postgres, sql);
  await assert.rejects(store.readLargePlant('alice', { ...EVERY_ID, from: 1n }), isDamage(1n));
  await assertReadsOthers(store);
});

test('PostgreSQL: the server returns no row for a page, or for its role → rejected, not an empty page', async () => {
  const page = createPageReader(async () => [])('alice', { from: 7n, to: 9n }, upTo(10));
  await assert.rejects(page, isDamage(7n));
  assert.throws(() => rowsOfPrimary([]), StoreUnavailable);
});

test('SQLite: the digest of a key is not binary → the key is named; its creation is not replayed', async (t) => {
  // A table without STRICT, as another program may restore it, keeps values of any type.
  const { store, url } = await openChanged(
    t,
    sqlite,
    `CREATE TABLE restored AS SELECT * FROM idempotency_keys;
     DROP TABLE idempotency_keys;
     ALTER TABLE restored RENAME TO idempotency_keys;
     UPDATE idempotency_keys SET digest = 'text'`,
  );
  const bulk = await openBulk(url, connections);
  t.after(() => bulk.close());
  await assert.rejects(
    bulk.read(['keys'], ({ keys }) => Array.fromAsync(keys())),
    /the idempotency key one of alice is damaged: its digest is not binary; .* WHERE owner = 'alice' AND key = 'one'$/,
  );
  assert.equal(await store.write(createOnce(2n, 'one')), 'keyReused');
});

const RESTORED_PLANTS =
  'CREATE TABLE restored AS SELECT * FROM plants; DROP TABLE plants; ALTER TABLE restored RENAME TO plants';
for (const { engine, fault, sql, message } of [
  {
    engine: sqlite,
    fault: 'the JSON of a large plant is missing',
    sql: 'DELETE FROM large_plants',
    message: /^the plant 1 of alice is damaged: its name is not text;/,
  },
  {
    engine: sqlite,
    fault: 'the JSON of a large plant is malformed',
    sql: `UPDATE large_plants SET json = '{"name":"x'`,
    message: /^the store .+plants\.db is damaged: malformed JSON/,
  },
  {
    engine: sqlite,
    fault: 'the name of a column is damaged',
    sql: 'ALTER TABLE plants RENAME COLUMN large_id TO large_ix',
    message: /^the store .+plants\.db is damaged: cannot join using column large_id /,
  },
  {
    engine: sqlite,
    fault: 'a plant has no owner and no id',
    sql: `${RESTORED_PLANTS}; UPDATE plants SET owner = NULL, id = NULL WHERE id = 2`,
    message: /^the plant null of null is damaged: its owner is not text;/,
  },
  {
    engine: sqlite,
    fault: 'the id of a plant is text',
    sql: `${RESTORED_PLANTS}; UPDATE plants SET id = 'two' WHERE id = 2`,
    message: /^the plant two of alice is damaged: its id is not an integer;/,
  },
  {
    engine: sqlite,
    fault: 'the tag of a plant is binary',
    sql: `${RESTORED_PLANTS}; UPDATE plants SET tag = x'00' WHERE id = 2`,
    message: /^the plant 2 of alice is damaged: its tag is not text;/,
  },
  {
    engine: postgres,
    fault: 'a plant has no name',
    sql: 'ALTER TABLE plants ALTER name DROP NOT NULL; UPDATE plants SET name = NULL WHERE id = 2',
    message: /^the plant 2 of alice is damaged: its name is not text;/,
  },
])
  test(`${engine.name}: ${fault} → commands that read it fail with a remedy`, async (t) => {
    const { url } = await openChanged(t, engine, sql);
    const bulk = await openBulk(url, connections);
    t.after(() => bulk.close());
    await assert.rejects(
      bulk.read(['plants'], ({ plants }) => Array.fromAsync(plants())),
      (error) =>
        error instanceof OperatorError &&
        message.test(error.message) &&
        /`plant-store check`.*restore a backup/.test(error.message),
    );
  });
