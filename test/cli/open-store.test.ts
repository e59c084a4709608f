import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { listCommands } from '../../build/fact-tables.ts';
import { displayUrl } from '../../src/database-url.ts';
import { migrateStore, storeExists } from '../../src/store/open-engine.ts';
import { engines, execute, postgres, rowsOf } from '../support/engines.ts';
import { holdWrites } from '../support/faults/hold-writes.ts';
import { assertFails, newInstallation, TOGETHER } from '../support/program.ts';
import { bearer } from '../support/service.ts';

const UNUSED_ID = 'AAAAAAAAAAAA';

/** The commands that reject a missing store, and those that create it, with their arguments. */
const REJECTS = {
  'token list': [],
  'token revoke': [UNUSED_ID],
  export: ['alice'],
  check: [],
};
const CREATES = { 'token create': ['alice'], migrate: [], import: ['alice'] };
/** Commands that need no store, or whose test is below or in another file. */
const ELSEWHERE = ['serve', 'copy', 'backup', 'openapi'];

it('another process holds the write lock of the file → commands that only read do not wait', async (t) => {
  const { run, file, databaseUrl, token } = await newInstallation(t);
  await token();
  const held = await holdWrites(databaseUrl);
  t.after(() => held.release());
  for (const args of [
    ['token', 'list'],
    ['export', 'alice'],
    ['copy', databaseUrl, `sqlite:${file}.new`],
  ]) {
    const { code, stderr } = await run(args);
    assert.equal(code, 0, stderr);
  }
});

it('the same, on a store that is one migration ahead → they do not wait; on one that is two ahead, they fail', async (t) => {
  const { run, databaseUrl } = await newInstallation(t);
  const { length } = await migrateStore(databaseUrl);
  const addMigration = (number: number) =>
    execute(
      databaseUrl,
      `INSERT INTO migrations (name) VALUES ('${String(number).padStart(4, '0')}-added.sql')`,
    );
  const commands = [
    ['token', 'list'],
    ['export', 'alice'],
  ];
  await addMigration(length + 1);
  const held = await holdWrites(databaseUrl);
  for (const args of commands) {
    const { code, stderr } = await run(args);
    assert.equal(code, 0, stderr);
  }
  await held.release();
  await addMigration(length + 2);
  for (const args of commands) assertFails(await run(args), /made by a newer version/);
});

describe('a file without tables', TOGETHER, () => {
  const files = {
    'an empty file': (file: string) => writeFile(file, ''),
    'a database without tables': (file: string) => execute(`sqlite:${file}`, 'PRAGMA journal_mode = WAL'),
  };
  const commands = (url: string) => [
    ['token', 'list'],
    ['token', 'revoke', UNUSED_ID],
    ['export', 'alice'],
    ['copy', url, `${url}.new`],
  ];
  for (const [what, create] of Object.entries(files))
    it(`${what} → commands that read or revoke reject it, and create no store`, async (t) => {
      const { run, file, folder, databaseUrl } = await newInstallation(t);
      await create(file);
      const before = await readFile(file);
      for (const args of commands(databaseUrl))
        assertFails(
          await run(args),
          /^plant-store: there is no store at .+plants\.db yet: the file is empty/,
        );
      assert.deepEqual(await readFile(file), before);
      assert.deepEqual(await readdir(folder), [basename(file)]);
    });
});

describe('a path with `..` after a symbolic link', TOGETHER, () => {
  /** A deployment whose link `app/current` leads to the folder of a version, and the path of a file next to that folder. */
  async function deploy(t: TestContext) {
    const installation = await newInstallation(t);
    const { folder } = installation;
    await mkdir(join(folder, 'versions/1'), { recursive: true });
    await mkdir(join(folder, 'app'));
    await symlink('../versions/1', join(folder, 'app/current'));
    return { ...installation, inVersions: (name: string) => `${folder}/app/current/../${name}` };
  }

  it('serve, export, check, copy and backup → the file that the operating system finds, and no other', async (t) => {
    const { folder, file, run, serve, token, inVersions } = await deploy(t);
    const url = `sqlite:${inVersions('plants.db')}`;
    const { stderr } = await run(['migrate', '--database-url', url]);
    assert.equal(stderr, `created a new store at ${inVersions('plants.db')}\n`);
    const secret = await token('alice', '--database-url', url);
    await writeFile(inVersions('in.ndjson'), '{"id":1,"name":"Alder"}\n');
    assert.equal((await run(['import', 'alice', inVersions('in.ndjson'), '--database-url', url])).code, 0);
    const service = await serve({ flags: ['--database-url', url] });
    const listed = await fetch(`${service.url}/plants`, { headers: bearer(secret) });
    assert.equal(await listed.text(), '[{"name":"Alder"}]');
    await service.stop();
    for (const command of [
      ['export', 'alice', inVersions('out.ndjson'), '--database-url', url],
      ['check', '--database-url', url],
      ['copy', url, `sqlite:${inVersions('copy.db')}`],
      ['backup', inVersions('backup.db'), '--database-url', url],
    ]) {
      const ended = await run(command);
      assert.equal(ended.code, 0, ended.stderr);
    }
    assert.deepEqual(await readdir(join(folder, 'app')), ['current']);
    const files = ['1', 'backup.db', 'copy.db', 'in.ndjson', 'out.ndjson', 'plants.db'];
    assert.deepEqual((await readdir(join(folder, 'versions'))).sort(), files);
    assert.equal(existsSync(file), false);
  });

  it('a link with such a path → the store, also one that is absent, of which only the log is there', async (t) => {
    const { folder, run, inVersions } = await deploy(t);
    const link = join(folder, 'app/plants.db');
    await symlink('current/../plants.db', link);
    await writeFile(inVersions('plants.db-wal'), 'writes');
    assertFails(
      await run(['migrate', '--database-url', `sqlite:${link}`]),
      /is missing, but .*plants\.db-wal is there/,
    );
    await rm(inVersions('plants.db-wal'));
    for (const command of ['migrate', 'check'])
      assert.equal((await run([command, '--database-url', `sqlite:${link}`])).code, 0);
    assert.equal(existsSync(inVersions('plants.db')), true);
  });
});

describe('a store in a new folder', TOGETHER, () => {
  it('a path through a new folder → the folder and the store are created', async (t) => {
    const { folder, run } = await newInstallation(t);
    const { code, stderr } = await run(['migrate', '--database-url', 'sqlite:new/folder/../plants.db']);
    assert.equal(code, 0, stderr);
    assert.deepEqual((await readdir(join(folder, 'new'))).sort(), ['folder', 'plants.db']);
  });

  it('a file that cannot be created → no folder is left', async (t) => {
    const { folder, run } = await newInstallation(t);
    const name = 'x'.repeat(300);
    for (const path of [`new/${name}`, `new/folder/${name}/plants.db`])
      assertFails(await run(['migrate', '--database-url', `sqlite:${path}`]), /too long|ENAMETOOLONG/);
    assert.deepEqual(await readdir(folder), []);
  });

  const unlessWindows = { skip: process.platform === 'win32' ? 'SQLite has another limit there' : false };

  it('a path of more than 504 bytes → rejected, and nothing is left', unlessWindows, async (t) => {
    const { folder, run } = await newInstallation(t);
    const pathOf = (bytes: number) => `${folder}/${'d'.repeat(150)}/${'d'.repeat(150)}/`.padEnd(bytes, 'x');
    const migrate = (path: string) => run(['migrate', '--database-url', `sqlite:${path}`]);
    const says = /its name is too long, .* or its path, which can have 504 bytes/;
    assertFails(await migrate(pathOf(505)), says);
    assert.deepEqual(await readdir(folder), []);

    assert.equal((await migrate(pathOf(504))).code, 0);
    const [store, to] = [`sqlite:${pathOf(504)}`, `sqlite:${pathOf(505)}`];
    assertFails(await run(['copy', store, to]), says);
    assertFails(await run(['backup', pathOf(497), '--database-url', store]), /name or path is too long/);
    assert.deepEqual(await readdir(dirname(pathOf(504))), [basename(pathOf(504))]);
    assert.equal((await run(['backup', pathOf(496), '--database-url', store])).code, 0);
  });

  it('a name of more than 247 bytes, to which -journal cannot be added → rejected, and nothing is left', async (t) => {
    const { folder, run } = await newInstallation(t);
    const migrate = (bytes: number) =>
      run(['migrate', '--database-url', `sqlite:new/${'é'.padEnd(bytes - 1, 'x')}`]);
    for (const bytes of [248, 252])
      assertFails(await migrate(bytes), /: its name is too long, also with the -journal/);
    assert.deepEqual(await readdir(folder), []);
    assert.equal((await migrate(247)).code, 0);
  });

  it('links to a new file → the path without them counts', unlessWindows, async (t) => {
    const { folder, run } = await newInstallation(t);
    const migrate = (path: string) => run(['migrate', '--database-url', `sqlite:${path}`]);
    const long = join(folder, 'd'.repeat(200), 'd'.repeat(200));
    await mkdir(long, { recursive: true });
    await symlink(long, join(folder, 'long'));
    assertFails(await migrate(`${folder}/long/${'x'.repeat(100)}`), /its name is too long/);
    assert.deepEqual(await readdir(long), []);

    const link = 'l'.repeat(200);
    await symlink('.', join(folder, link));
    for (const path of [`${link}/${link}/${link}/a.db`, `new/${link}/../b.db`])
      assert.equal((await migrate(`${folder}/${path}`)).code, 0, path);
  });
});

describe('a store of an earlier version', TOGETHER, () => {
  const FIRST = '0001-plants-and-tokens.sql';
  const MIGRATIONS = new URL('../../src/store/sqlite/migrations/', import.meta.url);
  const NEWER = "INSERT INTO migrations VALUES ('9997-a.sql'), ('9998-b.sql'), ('9999-c.sql')";
  const READ_ONLY = `DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database());
  END $$`;

  async function createOlder(url: string): Promise<void> {
    await execute(
      url,
      `CREATE TABLE migrations (name TEXT PRIMARY KEY) STRICT;
       ${await readFile(new URL(FIRST, MIGRATIONS), 'utf8')}
       INSERT INTO migrations VALUES ('${FIRST}');
       INSERT INTO plants VALUES ('alice', 1, 'Alder', NULL)`,
    );
  }

  const namesIn = async (url: string): Promise<readonly unknown[]> =>
    (await rowsOf(url, 'SELECT name FROM migrations ORDER BY name')).map(({ name }) => name);

  it('export or copy to what is taken → rejected, and neither store is migrated', async (t) => {
    const { run, folder, databaseUrl } = await newInstallation(t);
    const taken = join(folder, 'taken.ndjson');
    await writeFile(taken, '');
    const [full, other] = [`${databaseUrl}.full`, `${databaseUrl}.other`];
    await createOlder(databaseUrl);
    await createOlder(full);
    await execute(other, 'CREATE TABLE migrations (id integer)');
    assertFails(await run(['export', 'alice', taken]), /taken\.ndjson already exists/);
    assertFails(await run(['export', 'alice', join(folder, 'no/plants.csv')]), /there is no folder/);
    assertFails(await run(['copy', databaseUrl, full]), /is not empty; nothing was copied/);
    assertFails(await run(['copy', databaseUrl, other]), /is the database of another program/);
    assert.deepEqual([await namesIn(databaseUrl), await namesIn(full)], [[FIRST], [FIRST]]);
  });

  it('copy to a file that cannot take it → rejected, neither store is migrated, and nothing is created', async (t) => {
    const { run, folder, databaseUrl } = await newInstallation(t);
    await createOlder(databaseUrl);
    const text = join(folder, 'text');
    await writeFile(text, 'no database');
    const newer = `${databaseUrl}.newer`;
    await migrateStore(newer);
    await execute(newer, NEWER);
    const files = (await readdir(folder)).sort();
    for (const [to, reason] of [
      [newer, /made by a newer version/],
      [`sqlite:${text}`, /^plant-store: cannot open the store .+text: file is not a database/],
      [`sqlite:${text}/to.db`, /^plant-store: cannot open the store .+to\.db: .+text is not a folder/],
      [`sqlite:${folder}/new/${'x'.repeat(255)}`, /too long/],
    ] as const)
      assertFails(await run(['copy', databaseUrl, to]), reason);
    assert.deepEqual(await namesIn(databaseUrl), [FIRST]);
    assert.deepEqual((await readdir(folder)).sort(), files);
  });

  it('copy to a PostgreSQL database that cannot take it → the same', async (t) => {
    const { run, databaseUrl } = await newInstallation(t);
    await createOlder(databaseUrl);
    const migrated = async (sql: string) => {
      const url = await postgres.freshUrl(t);
      await migrateStore(url);
      await execute(url, sql);
      return url;
    };
    const taken = await postgres.freshUrl(t);
    await execute(taken, 'CREATE TABLE plants (id integer)');
    const absent = await postgres.freshUrl(t);
    await execute(absent, READ_ONLY);
    for (const [to, reason] of [
      [await migrated(NEWER), /made by a newer version/],
      [taken, /cannot open the PostgreSQL store: .*relation "plants" already exists/],
      [absent, /cannot open the PostgreSQL store: .*read-only transaction/],
      [await migrated(READ_ONLY), /cannot open the PostgreSQL store: .*read-only transaction/],
    ] as const)
      assertFails(await run(['copy', databaseUrl, to]), reason);
    assert.deepEqual(await namesIn(databaseUrl), [FIRST]);
    assert.deepEqual([await storeExists(taken), await storeExists(absent)], [false, false]);
  });

  it('copy of a file that is no store → no target is created', async (t) => {
    const { run, folder } = await newInstallation(t);
    await writeFile(join(folder, 'text'), 'no database');
    const target = await postgres.freshUrl(t);
    for (const to of [`sqlite:${folder}/new/to.db`, target])
      assertFails(await run(['copy', `sqlite:${folder}/text`, to]), /text: file is not a database/);
    assert.deepEqual([await readdir(folder), await storeExists(target)], [['text'], false]);
  });

  for (const command of ['export', 'copy', 'token list', 'token create', 'migrate'])
    it(`${command} → migrates it, and says so`, async (t) => {
      const { run, databaseUrl } = await newInstallation(t);
      await createOlder(databaseUrl);
      const args =
        { export: ['alice'], copy: [databaseUrl, `${databaseUrl}.new`], 'token create': ['alice'] }[
          command
        ] ?? [];
      const { code, stderr } = await run([...command.split(' '), ...args]);
      assert.equal(code, 0, stderr);
      const [, ...later] = (await readdir(MIGRATIONS)).sort();
      assert.ok(
        stderr.startsWith(`applying ${later.join(', ')} to the store at ${displayUrl(databaseUrl)}\n`),
        stderr,
      );
      assert.deepEqual(await namesIn(databaseUrl), [FIRST, ...later]);
    });
});

function toArguments([command, args]: readonly [string, readonly string[]]): readonly string[] {
  return [...command.split(' '), ...args];
}

it('each command without subcommands → has a case for a missing store', async () => {
  const all = (await listCommands()).filter(({ subcommands }) => subcommands.length === 0);
  const tested = [...Object.keys(REJECTS), ...Object.keys(CREATES), ...ELSEWHERE];
  assert.deepEqual(tested.toSorted(), all.map(({ name }) => name).toSorted());
});

for (const engine of engines) {
  describe(`a missing store on ${engine.name}`, TOGETHER, () => {
    for (const args of Object.entries(REJECTS).map(toArguments))
      it(`${args.join(' ')} → rejected, and no store is created`, async (t) => {
        const { run } = await newInstallation(t);
        const url = await engine.freshUrl(t);
        const { code, stdout, stderr } = await run(args, { env: { DATABASE_URL: url } });
        assert.deepEqual({ code, stdout }, { code: 1, stdout: '' });
        assert.ok(
          stderr.startsWith(`plant-store: there is no store at ${displayUrl(url)}; set --database-url `),
          stderr,
        );
        assert.equal(await storeExists(url), false);
      });

    it('copy from it → rejected, and neither store is created', async (t) => {
      const { run, databaseUrl } = await newInstallation(t);
      const url = await engine.freshUrl(t);
      const { code, stderr } = await run(['copy', url, databaseUrl]);
      assert.equal(code, 1);
      assert.match(stderr, /there is no store at .*; FROM must name an existing one\n/);
      assert.deepEqual([await storeExists(url), await storeExists(databaseUrl)], [false, false]);
    });

    it('database of another program with migrations → rejected and unchanged', async (t) => {
      const { run } = await newInstallation(t);
      const url = await engine.freshUrl(t);
      await execute(url, 'CREATE TABLE migrations (id integer, name text)');
      const { code } = await run(['token', 'list'], { env: { DATABASE_URL: url } });
      assert.equal(code, 1);
      await assert.rejects(rowsOf(url, 'SELECT * FROM tokens'), /tokens/);
    });

    for (const args of Object.entries(CREATES).map(toArguments))
      it(`${args.join(' ')} → creates it and says so, the first time only`, async (t) => {
        const { run } = await newInstallation(t);
        const url = await engine.freshUrl(t);
        const env = { DATABASE_URL: url };
        const first = await run(args, { env });
        assert.equal(first.code, 0);
        assert.ok(first.stderr.startsWith(`created a new store at ${displayUrl(url)}\n`), first.stderr);
        assert.doesNotMatch((await run(args, { env })).stderr, /created a new store/);
      });
  });
}
