import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { copyFile, type FileHandle, open, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { migrateStore, openBulk } from '../../../src/store/open-engine.ts';
import { connections } from '../../support/engines.ts';
import { holdWrites } from '../../support/faults/hold-writes.ts';
import { canRun, needs } from '../../support/needs.ts';
import { PATIENCE_MS, until } from '../../support/patience.ts';
import {
  assertFails,
  endOf,
  newInstallation,
  type Program,
  type ProgramOptions,
  TOGETHER,
} from '../../support/program.ts';

/** Starts imports that read from a pipe that stays open. */
async function prepareToFeed(t: TestContext) {
  const installation = await newInstallation(t);
  await migrateStore(installation.databaseUrl);
  const file = (name: string): string => join(installation.folder, name);
  const path = file('pipe.ndjson');
  assert.equal((await endOf(installation.start([], { wrap: () => ['mkfifo', path] }))).code, 0);
  const bulk = await openBulk(installation.databaseUrl, connections);
  t.after(() => bulk.close());

  /** Resolves once a part of the text is in the store. */
  async function feed(
    text: string,
    flags: readonly string[] = [],
    { source = path, ...options }: ProgramOptions & { readonly source?: string } = {},
  ): Promise<{ program: Program; pipe: FileHandle }> {
    const program = installation.start(['import', 'alice', source, ...flags], options);
    const pipe = await open(path, 'w');
    await pipe.write(text);
    while ((await bulk.read(['plants'], (contents) => contents.countPlants())) === 0) {
      assert.equal(program.output.stderr, '');
      await setImmediate();
    }
    return { program, pipe };
  }

  return { ...installation, file, feed };
}

function lines(count: number, first = 1): string {
  return Array.from(
    { length: count },
    (_, index) => `{"id":${first + index},"name":"plant ${first + index}"}\n`,
  ).join('');
}

describe('interrupted import', TOGETHER, () => {
  it('killed → a second run with skip finishes it', async (t) => {
    const { run, file, feed } = await prepareToFeed(t);
    const { program, pipe } = await feed(lines(3_000));
    program.kill('SIGKILL');
    await program.ended;
    await pipe.close();
    await writeFile(file('plants.ndjson'), lines(4_000));
    const { code, stdout } = await run(['import', 'alice', file('plants.ndjson'), '--on-conflict', 'skip']);
    assert.deepEqual({ code, stdout }, { code: 0, stdout: '2000 plants of alice created, 2000 skipped\n' });
    assert.equal((await run(['export', 'alice'])).stdout, lines(4_000));
  });

  for (const [onConflict, again] of [
    ['fail', 'skip'],
    ['skip', 'skip'],
    ['replace', 'replace'],
  ] as const)
    it(`--on-conflict ${onConflict} → says to import again with ${again}`, async (t) => {
      const { feed } = await prepareToFeed(t);
      const { program, pipe } = await feed(lines(2_000), ['--on-conflict', onConflict]);
      program.kill('SIGINT');
      const { signal, stderr } = await endOf(program);
      await pipe.close();
      assert.equal(signal, 'SIGINT');
      assert.match(
        stderr,
        new RegExp(`interrupted; 2000 plants created; .* with --on-conflict ${again} to finish\n$`),
      );
    });

  it('store locked → says how many are imported and how to finish', async (t) => {
    const { databaseUrl, feed } = await prepareToFeed(t);
    const { program, pipe } = await feed(lines(2_000));
    // The import may still end the commit that `feed` has seen.
    using other = new DatabaseSync(databaseUrl.replace('sqlite:', ''), { timeout: PATIENCE_MS });
    other.exec('BEGIN IMMEDIATE');
    await pipe.write(lines(2_000, 2_001));
    await pipe.close();
    const { code, stderr } = await endOf(program);
    assert.equal(code, 1);
    assert.match(stderr, /database is locked.*; 2000 plants created; .*--on-conflict skip/);
  });

  it('store replaced → says so, and that earlier plants may be gone too; the new store is unchanged', async (t) => {
    const { databaseUrl, feed, file } = await prepareToFeed(t);
    const store = databaseUrl.replace('sqlite:', '');
    await copyFile(store, file('backup.db'));
    const { program, pipe } = await feed(lines(2_000));
    // More than pipe and program hold: the import reads all only after it has checked the first batch.
    await pipe.write('\n'.repeat(512 * 1_024));
    await rename(store, file('old.db'));
    await copyFile(file('backup.db'), store);
    await pipe.write(lines(2_000, 2_001));
    await pipe.close();
    assertFails(
      await endOf(program),
      /plants\.db was moved, replaced or removed .*, and earlier ones may be gone .*; 2000 plants created, perhaps up to \d+ more; .*--on-conflict skip/,
    );
    assert.deepEqual(await readFile(store), await readFile(file('backup.db')));
  });

  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    it(`${signal} → prints the count and how to finish, and ends by the signal`, async (t) => {
      const { run, feed } = await prepareToFeed(t);
      const { program, pipe } = await feed(lines(5_000));
      program.kill(signal);
      const ended = await endOf(program);
      await pipe.close();
      assert.equal(ended.signal, signal);
      const message =
        /^plant-store: interrupted; (\d+) plants? created; import the file again with --on-conflict skip to finish\n$/;
      const [, created] = message.exec(ended.stderr) ?? [];
      const { stdout } = await run(['check', '--json']);
      assert.equal(JSON.parse(stdout).plants, Number(created), ended.stderr);
    });
  }
});

const NAMESPACE = ['unshare', '--user', '--map-root-user', '--pid', '--fork', '--mount-proc'] as const;

it('command without a signal handler, with the process id 1 → a signal ends it', {
  ...needs('permission for process namespaces', canRun(...NAMESPACE, 'true')),
}, async (t) => {
  const { databaseUrl, start } = await prepareToFeed(t);
  const held = await holdWrites(databaseUrl);
  t.after(() => held.release());
  // Waits for the lock, and then fails.
  const program = start(['migrate'], { wrap: (command) => [...NAMESPACE, ...command] });
  const children = `/proc/${program.pid}/task/${program.pid}/children`;
  let isOver = false;
  void program.ended.then(() => {
    isOver = true;
  });
  // A signal before the program runs has no effect.
  await until(async () => {
    const [child = ''] = (await readFile(children, 'utf8').catch(() => '')).split(' ');
    if (child !== '') canRun('kill', '-TERM', child);
    return isOver;
  });
  assert.equal((await program.ended).code, 128 + constants.signals.SIGTERM);
});

it('import with the process id 1, as in a container → a signal ends it', {
  ...needs('permission for process namespaces', canRun(...NAMESPACE, 'true')),
}, async (t) => {
  const { feed } = await prepareToFeed(t);
  const read = ['bash', '-c', 'exec "$@" < pipe.ndjson', 'bash'];
  const wrap = (command: readonly string[]) => [...NAMESPACE, ...read, ...command];
  const { program, pipe } = await feed(lines(2_000), [], { wrap, source: '-' });
  const [child] = (await readFile(`/proc/${program.pid}/task/${program.pid}/children`, 'utf8')).split(' ');
  process.kill(Number(child), 'SIGTERM');
  const { code, stderr } = await endOf(program);
  await pipe.close();
  assert.equal(code, 128 + constants.signals.SIGTERM);
  assert.match(stderr, /interrupted; 2000 plants created; /);
});

it('export ended by a signal → leaves no file', async (t) => {
  const { run, runProcess, file } = await prepareToFeed(t);
  await writeFile(file('plants.ndjson'), lines(200_000));
  assert.equal((await run(['import', 'alice', file('plants.ndjson')])).code, 0);
  // The program signals itself: it may end before another process can.
  const script = `import { existsSync } from 'node:fs';
      setInterval(() => existsSync('out.csv.partial') && process.kill(process.pid, 'SIGTERM'), 1)`;
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(script)}`;
  const { signal } = await runProcess(['export', 'alice', file('out.csv')], { env: { NODE_OPTIONS } });
  assert.equal(signal, 'SIGTERM');
  assert.equal(existsSync(file('out.csv.partial')), false);
  assert.equal(existsSync(file('out.csv')), false);
});

it('backup ended by a signal while it checks the copy → leaves no file', async (t) => {
  const { runProcess, file } = await prepareToFeed(t);
  // Node emits the event when the check starts its thread.
  const script = `process.on('worker', () => process.kill(process.pid, 'SIGTERM'))`;
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(script)}`;
  const { signal } = await runProcess(['backup', file('out.db')], { env: { NODE_OPTIONS } });
  assert.equal(signal, 'SIGTERM');
  const left = (await readdir(file('.'))).filter((name) => name.startsWith('out'));
  assert.deepEqual(left, []);
});

it('copy ended by a signal → clears the progress bar, says that nothing was copied, and a second copy succeeds', async (t) => {
  const { run, runProcess, file, databaseUrl } = await prepareToFeed(t);
  await writeFile(file('plants.ndjson'), lines(200_000));
  assert.equal((await run(['import', 'alice', file('plants.ndjson')])).code, 0);
  const script = `import { statSync } from 'node:fs';
      process.stderr.isTTY = true;
      const sizeOf = (file) => statSync(file, { throwIfNoEntry: false })?.size ?? 0;
      setInterval(() => sizeOf('copy.db-wal') > 1e6 && process.kill(process.pid, 'SIGTERM'), 1)`;
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(script)}`;
  const copy = ['copy', databaseUrl, `sqlite:${file('copy.db')}`];
  const { signal, stderr } = await runProcess(copy, { env: { NODE_OPTIONS } });
  assert.equal(signal, 'SIGTERM');
  const cleared = '\u001b[1G\u001b[2K' + 'plant-store: interrupted; nothing was copied; copy to ';
  assert.ok(stderr.includes(cleared), stderr);
  const { code, stdout } = await run(copy);
  assert.equal(code, 0);
  assert.match(stdout, /^copied and verified: 200000 plants/);
});
