import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it, type TestContext } from 'node:test';
import { openStore } from '../../src/store/open-engine.ts';
import { Connection } from '../support/clients/keep-alive-client.ts';
import { connections } from '../support/engines.ts';
import { NEEDS } from '../support/needs.ts';
import { type Installation, newInstallation, type ProgramOptions } from '../support/program.ts';
import { create } from '../support/store-setup.ts';
import { withoutCoverage } from '../support/without-coverage.ts';

const PRODUCTION = { NODE_ENV: 'production' };
const FERN = { name: 'Fern', tag: null };

const CANNOT_MOUNT = `${NEEDS}permission to mount, or a user without write access`;

/** Lock timeout of a write in docs/operations.md, less the resolution of timers. */
const WRITE_WAITS_MS = 4_500;

// Concurrent, since some tests mostly wait for a lock.
describe('unusable store', { concurrency: 4 }, () => {
  it('file read-only → does not start; the message names the remedy', async (t) => {
    const installation = await withOnePlant(t);
    const reading = readOnly(installation.file);
    if (reading === undefined) return t.skip(CANNOT_MOUNT);
    await assertRejected(installation, /EROFS.*mount its file system|EACCES.*must be writable/, reading);
  });

  it('folder read-only → does not start; the message names the remedy', async (t) => {
    const installation = await withOnePlant(t);
    const reading = readOnly(installation.folder);
    if (reading === undefined) return t.skip(CANNOT_MOUNT);
    await assertRejected(installation, /mount its file system|must be writable/, reading);
    chmodSync(installation.folder, 0o700);
  });

  it('writer thread that ends without an error → does not start; the message says so', async (t) => {
    const installation = await withOnePlant(t);
    const script = "import { isMainThread } from 'node:worker_threads'; if (!isMainThread) process.exit(0);";
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(script)}`;
    await assertRejected(installation, /: its writer thread ended without an error$/m, {
      env: { NODE_OPTIONS },
    });
  });

  const reads = [['check'], ['token', 'list'], ['export', 'alice']];
  for (const [command, place] of reads.flatMap((one) => [[one, 'folder'] as const, [one, 'file'] as const])) {
    it(`${command.join(' ')}: ${place} read-only → rejected with the same message, and leaves no file`, async (t) => {
      const installation = await withOnePlant(t);
      const reading = readOnly(installation[place]);
      if (reading === undefined) return t.skip(CANNOT_MOUNT);
      const files = filesIn(installation.folder);
      const { code, stdout, stderr } = await installation.runProcess(command, reading);
      chmodSync(installation[place], 0o700);
      assert.deepEqual(filesIn(installation.folder), files);
      assert.deepEqual({ code, stdout }, { code: 1, stdout: '' });
      const words = '(?:must be writable by this user|mount its file system for writing; .*)';
      assert.match(
        stderr,
        new RegExp(`^plant-store: cannot open the store ${installation.file}: .*${words}\n$`),
      );
    });
  }

  for (const command of [['check'], ['token', 'list', '--json']])
    it(`${command.join(' ')}: many tokens, no folder for temporary files → succeeds`, async (t) => {
      const installation = await withOnePlant(t);
      await installation.token();
      const db = new DatabaseSync(installation.file);
      // More than SQLite sorts without a temporary file. cspell:ignore randomblob
      db.exec(
        `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
         INSERT INTO tokens SELECT owner, format('many%08d', i), randomblob(32), name, scopes, created_at,
           expires_at, revoked_at, last_used_at FROM tokens, n`,
      );
      db.close();
      const mounted = writableOnly(installation.folder);
      if (mounted === undefined) return t.skip(CANNOT_MOUNT);
      const { code, stderr } = await installation.runProcess(command, mounted);
      assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
    });

  it('store of a newer version → does not start', async (t) => {
    const installation = await withOnePlant(t);
    const db = new DatabaseSync(installation.file);
    db.exec("INSERT INTO migrations (name) VALUES ('9999-of-the-future.sql')");
    db.close();
    await assertRejected(installation, /newer version.*9999-of-the-future\.sql/);
  });

  it('file is not a database → does not start', async (t) => {
    const installation = await newInstallation(t);
    writeFileSync(installation.file, 'id,name\n1,Black alder\n'.repeat(500));
    await assertRejected(installation, /not a database/);
  });

  it('first page damaged → does not start', async (t) => {
    const installation = await withOnePlant(t);
    const bytes = readFileSync(installation.file);
    writeFileSync(installation.file, bytes.fill(0xa5, 100, 300));
    await assertRejected(installation, /malformed/);
  });

  for (const command of [
    ['serve', '--port', '0', '--admin-port', '0'],
    ['migrate'],
    ['token', 'create', 'x'],
  ]) {
    it(`${command.slice(0, 2).join(' ')}: folder cannot be created, even by root → rejected`, async (t) => {
      const installation = await newInstallation(t);
      const url = 'sqlite:/proc/nosuch/folder/plants.db';
      const { code, stdout, stderr } = await installation.runProcess([...command, '--database-url', url]);
      const reason = 'the folder /proc/nosuch cannot be created (ENOENT)';
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

  it('missing folders → all are created with access for their owner only', async (t) => {
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

  it('locked by a writer at the start → waits, then serves', async (t) => {
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

  it('locked for 10 s at the start → does not start', async (t) => {
    const installation = await withOnePlant(t);
    using other = new DatabaseSync(installation.file);
    other.exec('BEGIN IMMEDIATE');
    await assertRejected(installation, /database is locked/);
  });

  it('locked while serving → writes get 503, reads work, and the service recovers', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    const service = await installation.serve({ env: PRODUCTION });
    const [writer, reader] = [new Connection(service.url, token), new Connection(service.url, token)];
    assert.equal((await writer.create(1n, FERN))?.status, 200);
    using other = new DatabaseSync(installation.file);
    other.exec('BEGIN IMMEDIATE');
    const began = performance.now();
    const rejected = writer.create(2n, FERN);
    assert.equal((await reader.list())?.body, '[{"name":"Fern"}]');
    const { status, body } = (await rejected) ?? {};
    const took = performance.now() - began;
    assert.equal(status, 503);
    assert.match(body ?? '', /"error":50300/);
    assert.ok(took > WRITE_WAITS_MS, `it took ${took} ms`);
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
  assert.equal(await store.write(create(1n, FERN)), 'created');
  await store.close();
  return installation;
}

/** Asserts that the service fails to start, prints one line, and leaves the file unchanged. */
async function assertRejected(
  installation: Installation,
  reason: RegExp,
  options: ProgramOptions = {},
): Promise<void> {
  const before = readFileSync(installation.file);
  const args = ['serve', '--port', '0', '--admin-port', '0'];
  const { code, stdout, stderr } = await installation.runProcess(args, {
    ...options,
    env: { ...PRODUCTION, ...options.env },
  });
  assert.equal(code, 1, stdout);
  assert.match(stderr, /^plant-store: .*\n$/);
  assert.match(stderr, reason);
  assert.equal(stdout, '');
  assert.deepEqual(readFileSync(installation.file), before);
}

/** Returns the files in a folder, without the cache of compiled code that a program may create. */
function filesIn(folder: string): readonly string[] {
  return readdirSync(folder).filter((name) => name !== '.cache');
}

/** Options to run a program without write access to a path. Undefined where that is impossible. */
function readOnly(path: string): ProgramOptions | undefined {
  if (process.getuid?.() === 0)
    // Root ignores file modes.
    return withMounts(path, 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"');
  chmodSync(path, 0o500);
  return {};
}

/** Options to run a program that can write in no folder but `kept`. Undefined where that is impossible. */
function writableOnly(kept: string): ProgramOptions | undefined {
  return withMounts(
    kept,
    `for folder in /tmp /var/tmp; do mount --bind $folder $folder && mount -o remount,ro,bind $folder; done &&
     mount -o remount,ro,bind / && mount --bind "$0" "$0" && mount -o remount,rw,bind "$0" && cd /`,
  );
}

/** Options to run a program after mounts, in which `$0` is the path. Undefined without permission to mount. */
function withMounts(path: string, mounts: string): ProgramOptions | undefined {
  const script = `${mounts} && exec "$@"`;
  const wrap = (command: readonly string[]) => [
    ...['unshare', '--mount', 'bash', '-c', script, path],
    ...withoutCoverage(command),
  ];
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
