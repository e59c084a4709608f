import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it, type TestContext } from 'node:test';
import { openStore } from '../../src/store/open-engine.ts';
import { Connection } from '../support/clients/keep-alive-client.ts';
import { connections } from '../support/engines.ts';
import { type Installation, newInstallation, type ProgramOptions } from '../support/program.ts';

const PRODUCTION = { NODE_ENV: 'production' };
const FERN = { name: 'Fern', tag: null };

/** What docs/operations.md says of a write that another process keeps waiting, with room for a busy machine. */
const WRITE_WAITS_MS = { least: 4_500, most: 15_000 };

// Some wait for a lock for most of their time, and take nothing from the others.
describe('a store that cannot be used', { concurrency: 4 }, () => {
  it('is not served when its file is read-only, and the message says what it needs', async (t) => {
    const installation = await withOnePlant(t);
    const reading = readOnly(installation.file);
    if (reading === undefined) {
      t.diagnostic('not run: this user may write to everything, and may not mount');
      return;
    }
    await assertRefused(installation, /(?:EROFS|EACCES).*must be writable/, reading);
  });

  it('is not served when its folder is read-only, and the message says what it needs', async (t) => {
    const installation = await withOnePlant(t);
    const reading = readOnly(installation.folder);
    if (reading === undefined) {
      t.diagnostic('not run: this user may write to everything, and may not mount');
      return;
    }
    await assertRefused(installation, /must be writable/, reading);
    chmodSync(installation.folder, 0o700);
  });

  for (const command of [['check'], ['token', 'list'], ['export', 'alice']]) {
    it(`is refused by ${command.join(' ')} when its folder is read-only, in the same words`, async (t) => {
      const installation = await withOnePlant(t);
      const reading = readOnly(installation.folder);
      if (reading === undefined) {
        t.diagnostic('not run: this user may write to everything, and may not mount');
        return;
      }
      const { code, stdout, stderr } = await installation.run(command, reading);
      chmodSync(installation.folder, 0o700);
      assert.deepEqual({ code, stdout }, { code: 1, stdout: '' });
      const words = 'must be writable by this user';
      assert.match(
        stderr,
        new RegExp(`^plant-store: cannot open the store ${installation.file}: .*${words}\n$`),
      );
    });
  }

  it('is not served when a newer version made it', async (t) => {
    const installation = await withOnePlant(t);
    const db = new DatabaseSync(installation.file);
    db.exec("INSERT INTO migrations (name) VALUES ('9999-of-the-future.sql')");
    db.close();
    await assertRefused(installation, /newer version.*9999-of-the-future\.sql/);
  });

  it('is not served when it is no database', async (t) => {
    const installation = await newInstallation(t);
    writeFileSync(installation.file, 'id,name\n1,Black alder\n'.repeat(500));
    await assertRefused(installation, /not a database/);
  });

  it('is not served when its first page is damaged', async (t) => {
    const installation = await withOnePlant(t);
    const bytes = readFileSync(installation.file);
    writeFileSync(installation.file, bytes.fill(0xa5, 100, 300));
    await assertRefused(installation, /malformed/);
  });

  for (const command of [
    ['serve', '--port', '0', '--admin-port', '0'],
    ['migrate'],
    ['token', 'create', 'x'],
  ]) {
    it(`is refused by ${command.slice(0, 2).join(' ')} when its folder cannot be made, not even by root`, async (t) => {
      const installation = await newInstallation(t);
      const url = 'sqlite:/proc/nosuch/folder/plants.db';
      const { code, stdout, stderr } = await installation.run([...command, '--database-url', url]);
      const reason = 'the folder /proc/nosuch cannot be made (ENOENT)';
      assert.deepEqual(
        { code, stdout, stderr },
        {
          code: 1,
          stdout: '',
          stderr: `plant-store: cannot open the store /proc/nosuch/folder/plants.db: ${reason}\n`,
        },
      );
    });
  }

  it('makes its folders for its user alone, however many are missing', async (t) => {
    const installation = await newInstallation(t);
    const folders = ['a', 'a/b', 'a/b/c'].map((path) => join(installation.folder, path));
    const url = `sqlite:${folders.at(-1)}/plants.db`;
    const ended = await Promise.all([1, 2].map(() => installation.run(['migrate', '--database-url', url])));
    assert.deepEqual(
      ended.map(({ code }) => code),
      [0, 0],
      JSON.stringify(ended),
    );
    for (const folder of folders) assert.equal(statSync(folder).mode & 0o777, 0o700);
  });

  it('is waited for at the start while another process writes to it, and served once that is done', async (t) => {
    const installation = await withOnePlant(t);
    using other = new DatabaseSync(installation.file);
    other.exec('BEGIN IMMEDIATE');
    const starting = installation.serve({ env: PRODUCTION });
    const isReady = starting.then(
      () => true,
      () => true,
    );
    assert.equal(await Promise.race([isReady, elapsed(1_000)]), false);
    other.exec('COMMIT');
    assert.equal((await (await starting).stop()).code, 0);
  });

  it('is not served when another process keeps it locked for 10 s', async (t) => {
    const installation = await withOnePlant(t);
    using other = new DatabaseSync(installation.file);
    other.exec('BEGIN IMMEDIATE');
    await assertRefused(installation, /database is locked/);
  });

  it('is a 503 for writes while another process keeps it locked, reads go on, and it heals', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    const service = await installation.serve({ env: PRODUCTION });
    const [writer, reader] = [new Connection(service.url, token), new Connection(service.url, token)];
    assert.equal((await writer.create(1n, FERN))?.status, 200);
    using other = new DatabaseSync(installation.file);
    other.exec('BEGIN IMMEDIATE');
    const began = performance.now();
    const refused = writer.create(2n, FERN);
    assert.equal((await reader.list())?.body, '[{"name":"Fern"}]');
    const { status, body } = (await refused) ?? {};
    const took = performance.now() - began;
    assert.equal(status, 503);
    assert.match(body ?? '', /"error":50300/);
    assert.ok(took > WRITE_WAITS_MS.least && took < WRITE_WAITS_MS.most, `it took ${took} ms`);
    other.exec('COMMIT');
    assert.equal((await writer.create(2n, FERN))?.status, 200);
    writer.close();
    reader.close();
    assert.equal((await service.stop()).code, 0);
  });
});

async function withOnePlant(t: TestContext): Promise<Installation> {
  const installation = await newInstallation(t);
  const store = await openStore(installation.databaseUrl, {
    connections,
    now: Date.now,
    onFatal: (error) => {
      throw error;
    },
  });
  const plant = { owner: 'alice', id: 1n, ...FERN, idempotency: null };
  assert.equal(await store.write({ kind: 'createPlant', ...plant }), 'created');
  await store.close();
  return installation;
}

/** The service ends before it serves, says why in one line, and leaves the file as it was. */
async function assertRefused(
  installation: Installation,
  reason: RegExp,
  options: ProgramOptions = {},
): Promise<void> {
  const before = readFileSync(installation.file);
  const args = ['serve', '--port', '0', '--admin-port', '0'];
  const { code, stdout, stderr } = await installation.run(args, { ...options, env: PRODUCTION });
  assert.equal(code, 1, stdout);
  assert.match(stderr, /^plant-store: .*\n$/);
  assert.match(stderr, reason);
  assert.equal(stdout, '');
  assert.deepEqual(readFileSync(installation.file), before);
}

/** How to run a program that cannot write to a path; undefined where there is no way. */
function readOnly(path: string): ProgramOptions | undefined {
  if (process.getuid?.() !== 0) {
    chmodSync(path, 0o500);
    return {};
  }
  // Modes do not keep root from writing.
  const mounts = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"';
  const wrap = (command: readonly string[]) => ['unshare', '--mount', 'bash', '-c', mounts, path, ...command];
  const [name = '', ...args] = wrap(['true']);
  try {
    execFileSync(name, args, { stdio: 'ignore' });
    return { wrap };
  } catch {
    return undefined;
  }
}

function elapsed(ms: number): Promise<false> {
  return new Promise((resolve) => void setTimeout(resolve, ms, false));
}
