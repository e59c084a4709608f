import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { describe, it } from 'node:test';
import { placeOf } from '../../src/database-url.ts';
import { migrateStore, storeExists } from '../../src/store/open-engine.ts';
import { engines, execute, rowsOf } from '../support/engines.ts';
import { holdWrites } from '../support/faults/hold-writes.ts';
import { assertFails, newInstallation, TOGETHER } from '../support/program.ts';

const UNUSED_ID = 'AAAAAAAAAAAA';

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
          /^plant-store: there is no store at \S+plants\.db yet: the file is empty/,
        );
      assert.deepEqual(await readFile(file), before);
      assert.deepEqual(await readdir(folder), [basename(file)]);
    });
});

for (const engine of engines) {
  describe(`a missing store on ${engine.name}`, TOGETHER, () => {
    for (const args of [['token', 'list'], ['token', 'revoke', UNUSED_ID], ['export', 'alice'], ['check']])
      it(`${args.join(' ')} → rejected, and no store is created`, async (t) => {
        const { run } = await newInstallation(t);
        const url = await engine.freshUrl(t);
        const { code, stdout, stderr } = await run(args, { env: { DATABASE_URL: url } });
        assert.deepEqual({ code, stdout }, { code: 1, stdout: '' });
        assert.ok(
          stderr.startsWith(`plant-store: there is no store at ${placeOf(url)}; set --database-url `),
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

    for (const args of [['token', 'create', 'alice'], ['migrate'], ['import', 'alice']])
      it(`${args.join(' ')} → creates it and says so, the first time only`, async (t) => {
        const { run } = await newInstallation(t);
        const url = await engine.freshUrl(t);
        const env = { DATABASE_URL: url };
        const first = await run(args, { env });
        assert.equal(first.code, 0);
        assert.ok(first.stderr.startsWith(`created a new store at ${placeOf(url)}\n`), first.stderr);
        assert.doesNotMatch((await run(args, { env })).stderr, /created a new store/);
      });
  });
}
