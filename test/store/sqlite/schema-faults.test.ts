import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { describe, type TestContext, test } from 'node:test';
import { backUpStore, openBulk, openStore } from '../../../src/store/open-engine.ts';
import { StoreNotOpened } from '../../../src/store/store.ts';
import { connections, execute, sqlite } from '../../support/engines.ts';
import { plantRow } from '../../support/plants.ts';
import { create, namesOf, prepare } from '../../support/store-setup.ts';
import { createTokenIn } from '../../support/tokens.ts';

/** A closed store with a short and a large plant. */
async function closedStore(t: TestContext): Promise<{ url: string; file: string }> {
  const { url, open } = await prepare(t, sqlite);
  const { store, close } = await open();
  await store.write(create(1n, { name: 'Alder' }));
  await store.write(create(2n, { name: 'x'.repeat(20_000) }));
  await close();
  return { url, file: url.slice('sqlite:'.length) };
}

async function replaceInFile(file: string, text: string, replacement: string): Promise<void> {
  const bytes = await readFile(file);
  const at = bytes.indexOf(text);
  assert.ok(at > 0 && text.length === replacement.length);
  bytes.write(replacement, at);
  await writeFile(file, bytes);
}

async function openedBulk(t: TestContext, url: string) {
  const bulk = await openBulk(url, connections);
  t.after(() => bulk.close());
  return bulk;
}

function openService(url: string) {
  return openStore(url, { now: Date.now, connections, onFatal: assert.fail });
}

describe('a part of the schema is missing or changed', () => {
  const TRIGGER =
    'CREATE TRIGGER delete_large_plant AFTER DELETE ON plants WHEN OLD.large_id IS NOT NULL ' +
    'BEGIN DELETE FROM large_plants WHERE large_id = OLD.large_id; END';
  const PLANTS =
    'CREATE TABLE plants ( owner TEXT NOT NULL, id INTEGER NOT NULL, name TEXT NOT NULL, tag TEXT, large_id INTEGER, ' +
    'PRIMARY KEY (owner, id) ) STRICT, WITHOUT ROWID';
  for (const { change, fault } of [
    {
      change: (file: string) => replaceInFile(file, '= OLD.large_id;', '< OLD.large_id;'),
      fault: `the trigger delete_large_plant differs from \`${TRIGGER};\``,
    },
    {
      change: (file: string) => execute(`sqlite:${file}`, 'DROP TRIGGER delete_large_plant'),
      fault: `the trigger delete_large_plant is missing: \`${TRIGGER};\``,
    },
    {
      change: (file: string) => execute(`sqlite:${file}`, 'DROP INDEX tokens_by_id'),
      fault: 'the index tokens_by_id is missing: `CREATE UNIQUE INDEX tokens_by_id ON tokens (id);`',
    },
    {
      change: (file: string) => execute(`sqlite:${file}`, 'DROP INDEX idempotency_keys_by_age'),
      fault:
        'the index idempotency_keys_by_age is missing: `CREATE INDEX idempotency_keys_by_age ON idempotency_keys (first_used_at);`',
    },
    {
      change: (file: string) => replaceInFile(file, 'tag TEXT', 'tah TEXT'),
      fault: `the table plants differs from \`${PLANTS};\``,
    },
    {
      change: (file: string) => replaceInFile(file, '(name TEXT PRIMARY', '(Name TEXT PRIMARY'),
      fault: 'the table migrations differs from `CREATE TABLE migrations (name TEXT PRIMARY KEY) STRICT;`',
    },
  ])
    test(`${fault.slice(0, 45)}… → named by \`check\` and \`backup\`; nothing writes to the store`, async (t) => {
      const { url, file } = await closedStore(t);
      await change(file);
      const bulk = await openedBulk(t, url);
      assert.deepEqual(await bulk.inspect(), { damages: [fault] });
      await assert.rejects(
        backUpStore(url, `${file}.backup`, () => undefined),
        { message: `the backup is damaged: ${fault}; run \`plant-store check\` on the store` },
      );
      await assert.rejects(openService(url), StoreNotOpened);
      await assert.rejects(bulk.savePlants([plantRow(2n)], 'replace'), {
        message: `cannot write to the store ${file}: ${fault}; see \`plant-store check\`, and repair it or restore a backup`,
      });
      assert.equal(await bulk.read(['plants'], (contents) => contents.countPlants()), 2);
    });
});

for (const { dropped, isRejected } of [
  { dropped: 'INDEX idempotency_keys_by_age', isRejected: false },
  { dropped: 'TRIGGER delete_large_plant', isRejected: false },
  { dropped: 'INDEX tokens_by_id', isRejected: true },
])
  test(`commands of tokens, without the ${dropped} → ${isRejected ? 'rejected' : 'revoke a token'}`, async (t) => {
    const { url } = await closedStore(t);
    await execute(url, `DROP ${dropped}`);
    const opening = openStore(url, { now: Date.now, connections, onFatal: assert.fail, onlyTokens: true });
    if (isRejected) return assert.rejects(opening, StoreNotOpened);
    const store = await opening;
    t.after(() => store.close());
    const token = await createTokenIn(store, 'alice', {}, Date.now());
    assert.equal(await store.write({ kind: 'revokeToken', id: token.id, at: Date.now() }), 'done');
  });

test('additions that do not change what is stored → sound, and lists stay in order', async (t) => {
  const { url } = await closedStore(t);
  await execute(
    url,
    `CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY); CREATE VIEW names AS SELECT name FROM plants;
     CREATE INDEX plants_by_name ON plants (name);
     CREATE UNIQUE INDEX one_plant ON plants (owner, id, name); CREATE UNIQUE INDEX one_digest ON tokens (digest);
     CREATE INDEX reversed ON plants (owner, id DESC, name, tag, large_id); ANALYZE`,
  );
  const bulk = await openedBulk(t, url);
  assert.deepEqual(await bulk.inspect(), { damages: [] });
  const store = await openService(url);
  t.after(() => store.close());
  for (const id of [5n, 4n, 3n]) await store.write(create(id, { name: `plant ${id}` }));
  assert.deepEqual(await namesOf(store, 'alice', { from: 3n, to: 9n }), ['plant 3', 'plant 4', 'plant 5']);
});

test('an additional trigger or unique index → named by `check`, and the service starts', async (t) => {
  const { url } = await closedStore(t);
  await execute(
    url,
    `CREATE TRIGGER shorten AFTER INSERT ON plants BEGIN UPDATE plants SET tag = NULL WHERE id = NEW.id; END;
     CREATE UNIQUE INDEX one_name ON plants (owner, name); CREATE UNIQUE INDEX one_case ON plants (lower(name));
     CREATE TABLE notes (id INTEGER PRIMARY KEY, note TEXT); CREATE UNIQUE INDEX one_note ON notes (note)`,
  );
  const bulk = await openedBulk(t, url);
  assert.deepEqual(await bulk.inspect(), {
    damages: [
      'the trigger shorten is not part of a store',
      'the unique index one_case is not part of a store',
      'the unique index one_name is not part of a store',
    ],
  });
  const service = await openService(url);
  await service.close();
});

test('names in quotes, and other white space, as of a restored table → sound', async (t) => {
  const { url } = await closedStore(t);
  await execute(
    url,
    `ALTER TABLE tokens RENAME TO moved; ALTER TABLE moved RENAME TO tokens; DROP INDEX tokens_by_id;
     CREATE UNIQUE INDEX "tokens_by_id"  ON tokens ("id")`,
  );
  const bulk = await openedBulk(t, url);
  assert.deepEqual(await bulk.inspect(), { damages: [] });
});

test('additional unique index → a plant that it rejects is an error, and replaces none', async (t) => {
  const { url } = await closedStore(t);
  await execute(url, 'CREATE UNIQUE INDEX one_name ON plants (owner, name)');
  const bulk = await openedBulk(t, url);
  for (const [id, onConflict] of [
    [2n, 'replace'],
    [3n, 'skip'],
  ] as const)
    await assert.rejects(
      bulk.savePlants([plantRow(id, { name: 'Alder' })], onConflict),
      /UNIQUE constraint failed/,
    );
  assert.equal(await bulk.read(['plants'], (contents) => contents.countPlants('alice')), 2);
});
