import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, type TestContext, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { applyMigrations, type MigrationTarget } from '../../src/store/migrations.ts';
import { migrateStore, openBulk, openStore } from '../../src/store/open-engine.ts';
import { isForbidden } from '../../src/store/sqlite/errors.ts';
import { SQLITE_MIGRATIONS } from '../../src/store/sqlite/migrate.ts';
import { type Outcome, StoreNotOpened, type Write } from '../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../src/token.ts';
import { connections, engines, execute, freshFolder, rowsOf } from '../support/engines.ts';
import { plantRow } from '../support/plants.ts';
import { repetitions } from '../support/repetitions.ts';
import { create, createOnce, upTo } from '../support/store-setup.ts';

const SQLITE_FILES = fileURLToPath(new URL(`../../src/${SQLITE_MIGRATIONS}`, import.meta.url));
const OPEN = new URL('../../src/store/open-engine.ts', import.meta.url);
const SETUP = new URL('../support/store-setup.ts', import.meta.url);

/** The names of the applied migrations in a database. */
function namesIn(db: DatabaseSync): string[] {
  return db
    .prepare('SELECT name FROM migrations ORDER BY rowid')
    .all()
    .map(({ name }) => String(name));
}

function tablesOf(db: DatabaseSync): readonly string[] {
  return db
    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    .all()
    .map(({ name }) => String(name));
}

/** A migration target on a database of the test. */
function targetOn(db: DatabaseSync): MigrationTarget {
  return {
    run: (sql) => db.exec(sql),
    applied: () => namesIn(db),
    record: (name) => {
      db.prepare('INSERT INTO migrations (name) VALUES (?)').run(name);
    },
  };
}

interface Prepared {
  readonly db: DatabaseSync;
  /** Adds files to the folder and applies it, in one transaction, as engines do. */
  migrate(files: Readonly<Record<string, string>>): Promise<readonly string[]>;
}

/** A database and a folder of migrations, both new. */
async function prepare(t: TestContext): Promise<Prepared> {
  const folder = await freshFolder();
  const db = new DatabaseSync(':memory:');
  t.after(() => db.close());
  db.exec('CREATE TABLE migrations (name TEXT PRIMARY KEY) STRICT');

  async function migrate(files: Readonly<Record<string, string>>): Promise<readonly string[]> {
    for (const [name, sql] of Object.entries(files)) await writeFile(join(folder, name), sql);
    db.exec('BEGIN IMMEDIATE');
    try {
      const names = await applyMigrations(pathToFileURL(`${folder}/`).href, targetOn(db));
      db.exec('COMMIT');
      return names;
    } catch (error: unknown) {
      db.exec('ROLLBACK');
      throw error;
    }
  }

  return { db, migrate };
}

describe('migrations', () => {
  const first = { '0001-trees.sql': 'CREATE TABLE trees (id INTEGER); CREATE TABLE leaves (id INTEGER);' };
  const second = { '0002-roots.sql': 'CREATE TABLE roots (id INTEGER);' };

  test('are applied in the order of their numbers, every statement of each', async (t) => {
    const { db, migrate } = await prepare(t);
    const applied = await migrate({
      '0010-c.sql': 'ALTER TABLE b RENAME TO c;',
      '0002-b.sql': 'ALTER TABLE a RENAME TO b; INSERT INTO b VALUES (2);',
      '0001-a.sql': '-- A comment; with a semicolon.\nCREATE TABLE a (id INTEGER);\n',
    });
    assert.deepEqual(applied, ['0001-a.sql', '0002-b.sql', '0010-c.sql']);
    assert.deepEqual(namesIn(db), applied);
    assert.deepEqual(tablesOf(db), ['c', 'migrations']);
    assert.deepEqual({ ...db.prepare('SELECT id FROM c').get() }, { id: 2 });
  });

  test('are applied once each; later only new ones are applied', async (t) => {
    const { db, migrate } = await prepare(t);
    assert.deepEqual(await migrate(first), ['0001-trees.sql']);
    assert.deepEqual(await migrate({}), []);
    assert.deepEqual(await migrate(second), ['0002-roots.sql']);
    assert.deepEqual(await migrate({}), []);
    assert.deepEqual(tablesOf(db), ['leaves', 'migrations', 'roots', 'trees']);
  });

  test('are the files that end in .sql, and no others', async (t) => {
    const { migrate } = await prepare(t);
    const others = {
      'README.md': 'no SQL',
      '0001-trees.sql.orig': 'no SQL',
      '.0001-trees.sql.swp': 'no SQL',
    };
    assert.deepEqual(await migrate({ ...others, ...first }), ['0001-trees.sql']);
  });

  test('one fails → all are rolled back, and the message names it', async (t) => {
    const { db, migrate } = await prepare(t);
    await migrate(first);
    const bad = { '0003-bad.sql': 'CREATE TABLE half (id INTEGER); CREATE TABLE trees (id INTEGER);' };
    const later = { '0004-later.sql': 'CREATE TABLE later (id INTEGER);' };
    await assert.rejects(migrate({ ...second, ...bad, ...later }), /0003-bad\.sql.*trees already exists/s);
    assert.deepEqual(tablesOf(db), ['leaves', 'migrations', 'trees']);
    assert.deepEqual(namesIn(db), ['0001-trees.sql']);
    const fixed = { '0003-bad.sql': 'CREATE TABLE fixed (id INTEGER);' };
    assert.deepEqual(await migrate(fixed), ['0002-roots.sql', '0003-bad.sql', '0004-later.sql']);
  });

  for (const [what, known, seen] of [
    ['more than one of which is unknown', {}, ['0002-b.sql', '0003-c.sql']],
    ['one of which is further than the next', {}, ['0003-c.sql']],
    ['which is ahead, and lacks one', second, ['0003-c.sql']],
    ['which is ahead by a file without a number', {}, ['b.sql']],
  ] as const)
    test(`are rejected on a store ${what}, before any change`, async (t) => {
      const { db, migrate } = await prepare(t);
      await migrate(first);
      for (const name of seen) db.prepare('INSERT INTO migrations VALUES (?)').run(name);
      await assert.rejects(
        migrate(known),
        (error) => error instanceof StoreNotOpened && error.message.includes(`it has ${seen.join(', ')}`),
      );
      assert.deepEqual(tablesOf(db), ['leaves', 'migrations', 'trees']);
    });

  test('do not change a store that is one migration ahead', async (t) => {
    const { db, migrate } = await prepare(t);
    await migrate(first);
    db.exec("INSERT INTO migrations VALUES ('0002-b.sql')");
    assert.deepEqual(await migrate({}), []);
    assert.deepEqual(namesIn(db), ['0001-trees.sql', '0002-b.sql']);
  });
});

test('a file that fails is named, and the error keeps its code', async () => {
  using db = new DatabaseSync(':memory:');
  db.exec('PRAGMA query_only = 1');
  const failing = applyMigrations(SQLITE_MIGRATIONS, {
    run: (sql) => db.exec(sql),
    applied: () => [],
    record: () => assert.fail('a failed file was recorded'),
  });
  await assert.rejects(failing, (error: Error) => {
    assert.match(
      error.message,
      /^the migration 0*1[\w-]*\.sql failed: attempt to write a readonly database$/,
    );
    assert.ok(isForbidden(error));
    return true;
  });
});

describe('the migrations of this version', () => {
  test('are numbered without a gap', async () => {
    for (const { name } of engines) {
      const files = await readdir(new URL(`../../src/store/${name}/migrations/`, import.meta.url));
      assert.ok(files.length > 0);
      for (const [index, file] of files.sort().entries())
        assert.match(
          file,
          new RegExp(`^${String(index + 1).padStart(4, '0')}-[a-z0-9]+(?:-[a-z0-9]+)*\\.sql$`),
        );
    }
  });

  for (const engine of engines) {
    test(`are applied to a new store on ${engine.name}, and never again`, async (t) => {
      const url = await engine.freshUrl(t);
      const applied = await migrateStore(url);
      assert.ok(applied.length > 0);
      assert.deepEqual(await migrateStore(url), []);
    });
  }
});

/** The first column of the primary key of each table, by engine. */
const FIRST_OF_KEYS: Readonly<Record<string, string>> = {
  sqlite: `SELECT tables.name AS "table", columns.name AS "column"
             FROM sqlite_schema AS tables JOIN pragma_table_info(tables.name) AS columns
            WHERE tables.type = 'table' AND columns.pk = 1`,
  postgres: `SELECT relname AS "table", attname AS "column"
               FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
                             JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
              WHERE indisprimary AND relnamespace = 'public'::regnamespace`,
};

for (const engine of engines) {
  test(`all keys begin with the owner, by which a distributed database can shard, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    await migrateStore(url);
    const firsts = await rowsOf(url, FIRST_OF_KEYS[engine.name] ?? '');
    assert.deepEqual(firsts.map(({ table, column }) => `${table}.${column}`).sort(), [
      'idempotency_keys.owner',
      ...(engine.name === 'sqlite' ? ['large_plants.large_id'] : []),
      'migrations.name',
      'plants.owner',
      'tokens.owner',
    ]);
  });
}

test('SQLite: a store with large plants of an earlier version → the same plants, moved', async (t) => {
  const file = join(await freshFolder(), 'plants.db');
  const db = new DatabaseSync(file);
  t.after(() => db.close());
  db.exec(`CREATE TABLE migrations (name TEXT PRIMARY KEY) STRICT`);
  db.exec(await readFile(join(SQLITE_FILES, '0001-plants-and-tokens.sql'), 'utf8'));
  db.exec("INSERT INTO migrations VALUES ('0001-plants-and-tokens.sql')");
  const insert = db.prepare('INSERT INTO plants (owner, id, name, tag) VALUES (?, ?, ?, ?)');
  const plants = [
    plantRow(1n, { name: 'small', tag: 'herb' }),
    plantRow(2n, { name: 'é"\n'.repeat(100_000), tag: null }),
    plantRow(3n, { owner: 'bob', name: '', tag: 'x'.repeat(20_000) }),
  ];
  for (const { owner, id, name, tag } of plants) insert.run(owner, id, name, tag);
  const url = `sqlite:${file}`;
  const [, ...later] = (await readdir(SQLITE_FILES)).sort();
  assert.deepEqual(await migrateStore(url), later);
  const bulk = await openBulk(url, connections);
  t.after(() => bulk.close());
  assert.deepEqual(await bulk.inspect(), { damages: [] });
  assert.deepEqual(
    await bulk.read(['plants'], async ({ plants }) => (await Array.fromAsync(plants())).flat()),
    plants,
  );
  assert.equal(db.prepare('SELECT count(*) AS rows FROM large_plants').get()?.rows, 2);
  await bulk.savePlants([plantRow(2n, { name: 'small now' })], 'replace');
  assert.equal(db.prepare('SELECT count(*) AS rows FROM large_plants').get()?.rows, 1);
});

for (const engine of engines) {
  test(`the next version adds columns (rolling upgrade) → the store keeps working and opens again, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    const store = await openStore(url, { now: Date.now, connections, onFatal: assert.fail });
    t.after(() => store.close());

    async function doAll(id: bigint): Promise<void> {
      const token = newToken(mintSecret(), 'alice', { scopes, expiresAt: null, name: '' }, 0);
      const script: readonly (readonly [Write, Outcome])[] = [
        [create(id, { name: 'Alder' }), 'created'],
        [createOnce(-id, `${id}`, 'Alder'), 'created'],
        [createOnce(-id, `${id}`, 'Alder'), 'createdReplayed'],
        [{ kind: 'createToken', token }, 'done'],
        [{ kind: 'recordTokenUse', id: token.id, at: 60_000 }, 'done'],
        [{ kind: 'revokeToken', id: token.id, at: 60_000 }, 'done'],
        [{ kind: 'deletePlant', owner: 'alice', id }, 'deleted'],
      ];
      for (const [write, outcome] of script) assert.equal(await store.write(write), outcome);
      const page = await store.listPlants('alice', { from: -id, to: id }, upTo(1));
      assert.equal(page.json, '[{"name":"Alder"}]');
      assert.equal((await store.findToken(token.digest))?.revokedAt, 60_000);
      assert.equal((await store.findTokenById(token.id))?.revokedAt, 60_000);
      assert.equal(await store.hasValidTokens(0), false);
    }

    // Enough rounds to prepare all statements on every connection.
    for (let id = 1n; id <= 20n; id += 1n) await doAll(id);
    for (const table of ['plants', 'idempotency_keys', 'tokens'])
      await execute(url, `ALTER TABLE ${table} ADD COLUMN added text`);
    for (let id = 21n; id <= 40n; id += 1n) await doAll(id);

    const [last] = await rowsOf(url, 'SELECT max(name) AS name FROM migrations');
    const next = String(Number.parseInt(String(last?.name), 10) + 1).padStart(4, '0');
    await execute(url, `INSERT INTO migrations (name) VALUES ('${next}-added.sql')`);
    assert.deepEqual(await migrateStore(url), []);
    const again = await openStore(url, { now: Date.now, connections, onFatal: assert.fail });
    t.after(() => again.close());
    assert.equal((await again.listPlants('alice', { from: -40n, to: 40n }, upTo(1))).cut?.last, -40n);
  });
}

for (const encoding of ['LATIN1', 'SQL_ASCII']) {
  test(`a PostgreSQL database in ${encoding} is rejected, since it cannot store every name`, async (t) => {
    const url = new URL(process.env.TEST_DATABASE_URL ?? '');
    const name = `test_${encoding.toLowerCase()}`;
    const create = `CREATE DATABASE ${name} ENCODING '${encoding}' LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0`;
    await execute(url.href, create);
    t.after(() => execute(String(process.env.TEST_DATABASE_URL), `DROP DATABASE ${name}`));
    url.pathname = `/${name}`;
    await assert.rejects(migrateStore(url.href), {
      name: 'StoreNotOpened',
      message: `the encoding of the database must be UTF8, not ${encoding}; create one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`,
    });
    assert.deepEqual(await rowsOf(url.href, "SELECT FROM pg_tables WHERE schemaname = 'public'"), []);
  });
}

/** Migrates, opens, writes to and closes the store of each URL it receives, and returns the applied migrations. */
const WORK = `
  const { migrateStore, openStore } = await import(${JSON.stringify(OPEN.href)});
  const { create } = await import(${JSON.stringify(SETUP.href)});
  process.on('message', async (url) => {
    try {
      const applied = await migrateStore(url);
      const store = await openStore(url, { now: Date.now, onFatal: (error) => process.send(String(error)), connections: ${JSON.stringify(connections)} });
      const outcome = await store.write(create(BigInt(process.pid)));
      await store.close();
      process.send({ applied, outcome });
    } catch (error) {
      process.send(String(error));
    }
  });
  process.send('ready');
`;

async function startWorker(t: TestContext): Promise<ChildProcess> {
  const script = join(await freshFolder(), 'work.mjs');
  await writeFile(script, WORK);
  const worker = fork(script);
  const ended = once(worker, 'exit');
  t.after(async () => {
    worker.kill();
    await ended;
  });
  assert.deepEqual(await once(worker, 'message'), ['ready', undefined]);
  return worker;
}

async function ask(worker: ChildProcess, url: string): Promise<unknown> {
  const answer = once(worker, 'message');
  worker.send(url);
  const [message]: unknown[] = await answer;
  return message;
}

for (const engine of engines) {
  test(`processes open one new store on ${engine.name} together → all succeed, and one migrates it`, async (t) => {
    const workers = await Promise.all(Array.from({ length: 3 }, () => startWorker(t)));
    const all = await migrateStore(await engine.freshUrl(t));
    for (let round = 0; round < repetitions(8); round += 1) {
      const url = await engine.freshUrl(t);
      const answers = await Promise.all(workers.map((worker) => ask(worker, url)));
      const migrated = answers.filter(
        (answer) => !isDeepStrictEqual(answer, { applied: [], outcome: 'created' }),
      );
      assert.deepEqual(migrated, [{ applied: all, outcome: 'created' }], `round ${round}`);
      assert.deepEqual(await migrateStore(url), []);
    }
  });
}

test('another process is creating the SQLite file → wait, without blocking this process', async (t) => {
  const file = join(await freshFolder(), 'plants.db');
  const other = new DatabaseSync(file);
  t.after(() => other.close());
  other.exec('BEGIN IMMEDIATE; CREATE TABLE half_made (id INTEGER)');
  const migrated = migrateStore(`sqlite:${file}`);
  // Enough time for the first attempt to fail.
  const released = setTimeout(100).then(() => other.exec('ROLLBACK'));
  const [names] = await Promise.all([migrated, released]);
  assert.ok(names.length > 0);
});
