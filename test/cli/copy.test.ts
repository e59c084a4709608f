import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { PassThrough, Readable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { copyStore } from '../../src/cli/commands/copy-command.ts';
import { displayUrl } from '../../src/database-url.ts';
import { ndjson } from '../../src/formats/ndjson.ts';
import type { PlantRow } from '../../src/plant.ts';
import type { Bulk, Filling, KeyRow } from '../../src/store/bulk-store.ts';
import { migrateStore, openBulk, openStore } from '../../src/store/open-engine.ts';
import { type Store, StoreUnavailable } from '../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../src/token.ts';
import { hostilePlants } from '../support/data/hostile-plants.ts';
import { connections, engines, execute, postgres, sqlite } from '../support/engines.ts';
import { damagePage, hideRows } from '../support/faults/damaged-file.ts';
import { plantRow } from '../support/plants.ts';
import { assertFails, newInstallation } from '../support/program.ts';
import { repetitions } from '../support/repetitions.ts';
import { startTcpProxy } from '../support/servers/tcp-proxy.ts';
import { createOnce } from '../support/store-setup.ts';

const EXAMPLE = fileURLToPath(new URL('../../examples/plants.ndjson', import.meta.url));

describe('plants moved between formats and engines', () => {
  for (const { what, text } of [
    { what: 'the 630 example plants', text: readFileSync(EXAMPLE, 'utf8') },
    { what: 'hostile plants', text: ndjson.write(hostilePlants(repetitions(10_000))) },
  ]) {
    it(`NDJSON → SQLite → CSV → PostgreSQL → SQLite → NDJSON returns ${what} unchanged`, async (t) => {
      const { folder, run } = await newInstallation(t);
      const file = (name: string): string => join(folder, name);
      const first = `sqlite:${file('first.db')}`;
      const second = await postgres.freshUrl(t);
      const third = `sqlite:${file('third.db')}`;
      await writeFile(file('in.ndjson'), text);
      for (const args of [
        ['import', 'alice', file('in.ndjson'), '--database-url', first],
        ['export', 'alice', file('plants.csv'), '--database-url', first],
        ['import', 'alice', file('plants.csv'), '--database-url', second],
        ['copy', second, third],
        ['export', 'alice', file('out.ndjson'), '--database-url', third],
      ]) {
        const { code, stderr } = await run(args);
        assert.equal(code, 0, `${args[0]}: ${stderr}`);
      }
      assert.ok((await readFile(file('out.ndjson'))).equals(Buffer.from(text)));
    });
  }

  it('damaged store → the message names it; export to a file leaves none', async (t) => {
    const { folder, file, run } = await newInstallation(t);
    const plants = join(folder, 'plants.ndjson');
    await writeFile(plants, ndjson.write(hostilePlants(5_000)));
    assert.equal((await run(['import', 'alice', plants])).code, 0);
    await damagePage(file);
    const damaged = new RegExp(`the store ${file} is damaged: database disk image is malformed`);
    const copied = await run(['copy', `sqlite:${file}`, `sqlite:${join(folder, 'copy.db')}`]);
    assert.equal(copied.code, 1);
    assert.match(copied.stderr, damaged);
    assertFails(await run(['export', 'alice', join(folder, 'out.ndjson')]), damaged);
    assert.equal(existsSync(join(folder, 'out.ndjson.partial')), false);
  });

  it('damage that hides plants from every read → copy fails with the fault, and creates no store', async (t) => {
    const { folder, file, run } = await newInstallation(t);
    const plants = join(folder, 'plants.ndjson');
    await writeFile(
      plants,
      ndjson.write(Array.from({ length: 1_500 }, (_, id) => ({ id: BigInt(id), name: 'Alder' }))),
    );
    assert.equal((await run(['import', 'alice', plants])).code, 0);
    const token = await run(['token', 'create', 'alice']);
    assert.equal(token.code, 0);
    await hideRows(file, 'plants');
    const kept = await readFile(file);
    assert.equal((await run(['export', 'alice', '--database-url', `sqlite:${file}`])).code, 0);
    assertFails(
      await run(['copy', `sqlite:${file}`, `sqlite:${join(folder, 'copy.db')}`]),
      new RegExp(`${file} is damaged: .*page.*; nothing was copied.*restore a backup`),
    );
    assert.deepEqual(
      [existsSync(join(folder, 'copy.db')), (await readFile(file)).equals(kept)],
      [false, true],
    );
  });

  it('env:NAME → the URL in that variable; variable unset or without a URL → fails', async (t) => {
    const { folder, run } = await newInstallation(t);
    const env = {
      SOURCE: `sqlite:${join(folder, 'plants.db')}`,
      TARGET: await postgres.freshUrl(t),
      WRONG: 'no:secret',
      'WITH-DASH': 'no:store',
    };
    assert.equal((await run(['import', 'alice', EXAMPLE])).code, 0);
    assertFails(
      await run(['copy', 'env:SOURCE', 'env:NONE'], { env }),
      /TO is env:NONE, but the variable NONE is not set; set it/,
    );
    assertFails(
      await run(['copy', 'env:', 'env:TARGET'], { env }),
      /FROM begins with "env:" but names no variable; write env:NAME/,
    );
    assertFails(await run(['copy', '', 'env:TARGET'], { env }), /FROM must be sqlite:FILE/);
    assertFails(await run(['copy', 'env:WITH-DASH', 'env:TARGET'], { env }), /FROM \(WITH-DASH\) must be/);
    const wrong = await run(['copy', 'env:WRONG', 'env:TARGET'], { env });
    assertFails(wrong, /FROM \(WRONG\) must be sqlite:FILE/);
    assert.doesNotMatch(wrong.stderr, /secret/);
    const plain = await run(['copy', 'env:SOURCE', 'env:TARGET'], {
      env: { ...env, PGSSLMODE: 'verify_full' },
    });
    assertFails(plain, /TO \(TARGET\) must have the option sslmode, since PGSSLMODE is "verify_full"/);
    const { code, stdout, stderr } = await run(['copy', 'env:SOURCE', 'env:TARGET'], { env });
    assert.deepEqual([code, stderr], [0, `created a new store at ${displayUrl(env.TARGET)}\n`]);
    assert.match(stdout, /^copied and verified: 630 plants /);
  });

  for (const [from, to] of [
    [sqlite, postgres],
    [postgres, sqlite],
  ] as const) {
    it(`copies tokens and idempotency keys from ${from.name} to ${to.name}`, async (t) => {
      const { run } = await newInstallation(t);
      const [source, target] = [await from.freshUrl(t), await to.freshUrl(t)];
      const secret = mintSecret();
      const token = newToken(
        secret,
        'alice',
        { scopes, expiresAt: null, name: 'the greenhouse' },
        Date.now(),
      );
      const creation = createOnce(1n, 'once');
      await withStore(source, async (store) => {
        await store.write({ kind: 'createToken', token });
        assert.equal(await store.write(creation), 'created');
      });
      const { code, stdout } = await run(['copy', source, target, '--json']);
      assert.equal(code, 0);
      assert.match(stdout, /^\{"plants":1,"tokens":1,"keys":1,"checksum":"[0-9a-f]{16}"\}\n$/);
      await withStore(target, async (store) => {
        const { digest, ...fields } = token;
        assert.deepEqual(await store.findToken(digest), fields);
        assert.equal(await store.write(creation), 'createdReplayed');
      });
    });
  }

  for (const { name, freshUrl } of engines)
    it(`source of a newer version → rejected, since its additional data would be lost, on ${name}`, async (t) => {
      const { folder, run } = await newInstallation(t);
      const source = await freshUrl(t);
      const target = join(folder, 'target.db');
      const names = await migrateStore(source);
      const next = `${String(names.length + 1).padStart(4, '0')}-added.sql`;
      await execute(source, `INSERT INTO migrations (name) VALUES ('${next}')`);
      assertFails(
        await run(['copy', source, `sqlite:${target}`]),
        new RegExp(`made by a newer version of plant-store \\(it has ${next}\\); run that version`),
      );
      assert.ok(!existsSync(target));
    });

  for (const { name, freshUrl } of engines)
    it(`target that is one migration ahead, as after the way back → copied, and migrate has nothing to do, on ${name}`, async (t) => {
      const { run, databaseUrl } = await newInstallation(t);
      await run(['import', 'alice', EXAMPLE]);
      const target = await freshUrl(t);
      const names = await migrateStore(target);
      const next = `${String(names.length + 1).padStart(4, '0')}-added.sql`;
      await execute(target, `INSERT INTO migrations (name) VALUES ('${next}')`);
      const copied = await run(['copy', databaseUrl, target]);
      assert.equal(copied.code, 0, copied.stderr);
      assert.match(copied.stdout, /^copied and verified: 630 plants/);
      assert.equal((await run(['migrate', '--database-url', target])).stdout, 'nothing to apply\n');
    });

  it('target is not empty → rejected and unchanged', async (t) => {
    const { folder, run, databaseUrl } = await newInstallation(t);
    const target = `sqlite:${join(folder, 'target.db')}`;
    await run(['import', 'alice', EXAMPLE]);
    await run(['token', 'create', 'bob', '--database-url', target]);
    const { code, stdout, stderr } = await run(['copy', databaseUrl, target]);
    assert.deepEqual({ code, stdout }, { code: 1, stdout: '' });
    assert.match(stderr, /target\.db is not empty; nothing was copied/);
    assert.equal((await run(['export', 'alice', '--database-url', target])).stdout, '');
  });

  it('invalid URL → named without its password', async (t) => {
    const { run, databaseUrl } = await newInstallation(t);
    assert.match((await run(['copy', 'plants.db', databaseUrl])).stderr, /FROM must be sqlite:FILE/);
    assert.match((await run(['copy', databaseUrl, 'mysql://x'])).stderr, /TO must be sqlite:FILE/);
    await run(['migrate']);
    const away = await run(['copy', databaseUrl, 'postgres://me:secret@127.0.0.1:1/plants']);
    assert.equal(away.code, 1);
    assert.doesNotMatch(away.stderr, /secret/);
  });

  it('copies every table of the schema', async (t) => {
    const url = await sqlite.freshUrl(t);
    await migrateStore(url);
    using db = new DatabaseSync(url.replace('sqlite:', ''));
    const tables = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").all();
    const carried = ['idempotency_keys', 'large_plants', 'plants', 'tokens'];
    assert.deepEqual(
      tables.map(({ name }) => name).filter((name) => name !== 'migrations'),
      carried,
    );
  });
});

describe('the verification of a copy', () => {
  const rows: readonly PlantRow[] = [
    plantRow(1n, { name: 'Alder' }),
    plantRow(2n, { name: 'Elm', tag: '' }),
    plantRow(2n ** 53n + 1n, { name: 'Rowan' }),
  ];
  const keys: readonly KeyRow[] = [
    { owner: 'alice', key: 'k', digest: Buffer.alloc(32), outcome: 'created', firstUsedAt: 1 },
  ];
  const token = newToken(mintSecret(), 'alice', { scopes, expiresAt: null, name: '' }, Date.now());
  const copy = (source: Pick<Bulk, 'read'>, target: Pick<Bulk, 'fill'>) =>
    copyStore(new PassThrough(), source, target, () => undefined);

  for (const { fault, spoil } of [
    { fault: 'a plant that is lost', spoil: add((plants) => plants.slice(1)) },
    {
      fault: 'a name that is changed',
      spoil: add((plants) => plants.map((one) => ({ ...one, name: 'Oak' }))),
    },
    {
      fault: 'an empty tag that is lost',
      spoil: add((plants) => plants.map((one) => ({ ...one, tag: null }))),
    },
    {
      fault: 'id off by one',
      spoil: add((plants) => plants.map((one) => ({ ...one, id: one.id + 1n }))),
    },
    {
      fault: 'id rounded to a double',
      spoil: add((plants) => plants.map((one) => ({ ...one, id: BigInt(Number(one.id)) }))),
    },
    {
      fault: 'lost key',
      spoil: (filling: Filling): Filling => ({ ...filling, addKeys: async () => undefined }),
    },
    {
      fault: 'lost token',
      spoil: (filling: Filling): Filling => ({ ...filling, addTokens: async () => undefined }),
    },
  ]) {
    it(`${fault} → fails, and nothing is copied`, async (t) => {
      const [source, target] = [await openEmpty(t), await openEmpty(t)];
      await source.fill(async (filling) => {
        await filling.addPlants(rows);
        await filling.addKeys(keys);
        await filling.addTokens([token]);
      });
      const spoilt: Pick<Bulk, 'fill'> = { fill: (work) => target.fill((filling) => work(spoil(filling))) };
      await assert.rejects(copy(source, spoilt), /sent .*, read back /);
      assert.equal(await target.read(['plants'], (contents) => contents.countPlants()), 0);
      await copy(source, target);
      assert.equal(await target.read(['plants'], (contents) => contents.countPlants()), rows.length);
    });
  }

  it('session of the source ends after its last row → fails, and nothing is copied', async (t) => {
    const url = await postgres.freshUrl(t);
    const [source, target] = [await openMigrated(t, url), await openEmpty(t)];
    await source.fill((filling) => filling.addPlants(rows));
    const ending: Pick<Bulk, 'read'> = {
      read: (parts, work) =>
        source.read(parts, async (contents) => {
          const result = await work(contents);
          await execute(url, END_OTHER_SESSIONS);
          return result;
        }),
    };
    await assert.rejects(copy(ending, target), StoreUnavailable);
    assert.equal(await target.read(['plants'], (contents) => contents.countPlants()), 0);
  });
});

it('the response to the COMMIT of a copy is lost → all of the copy or nothing; `check` shows which', async (t) => {
  const { databaseUrl, run } = await newInstallation(t);
  const stdin = Readable.from([Buffer.from('{"id":1,"name":"Alder"}\n{"id":2,"name":"Birch"}\n')]);
  assert.equal((await run(['import', 'alice'], { stdin })).code, 0);
  const url = new URL(await postgres.freshUrl(t));
  const direct = url.href;
  // The migration commits too, before the plants are sent.
  let lost: Promise<void> | undefined;
  const proxy = await startTcpProxy(t, Number(url.port), (bytes) => {
    if (bytes.includes('Birch')) lost ??= proxy.expect(/COMMIT/, 'cut after');
  });
  url.host = `127.0.0.1:${proxy.port}`;
  assertFails(
    await run(['copy', databaseUrl, url.href]),
    /; \S+ has all of the copy or nothing; `plant-store check` shows which\n$/,
  );
  await lost;
  assert.match((await run(['check', '--database-url', direct])).stdout, /\b2 plants\b/);
});

/** A loader that changes plants before it adds them. */
function add(change: (plants: readonly PlantRow[]) => readonly PlantRow[]): (filling: Filling) => Filling {
  return (filling) => ({ ...filling, addPlants: (plants) => filling.addPlants(change(plants)) });
}

const END_OTHER_SESSIONS = `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid()`;

async function openEmpty(t: TestContext): Promise<Bulk> {
  assert.ok(sqlite !== undefined);
  return openMigrated(t, await sqlite.freshUrl(t));
}

async function openMigrated(t: TestContext, url: string): Promise<Bulk> {
  await migrateStore(url);
  const bulk = await openBulk(url, connections);
  t.after(() => bulk.close());
  return bulk;
}

async function withStore(url: string, work: (store: Store) => Promise<void>): Promise<void> {
  const store = await openStore(url, { now: Date.now, onFatal: assert.fail, connections });
  try {
    await work(store);
  } finally {
    await store.close();
  }
}
