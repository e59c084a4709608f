import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join, relative } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import pg from 'pg';
import { migrateStore } from '../../src/store/open-engine.ts';
import { fillStore } from '../long/long-list.ts';
import { postgres } from '../support/engines.ts';
import { damage } from '../support/faults/damaged-file.ts';
import {
  CAN_LIFT_LIMITS,
  type Command,
  create,
  createUntilFailure,
  inspect,
  liftLimit,
  limitedFiles,
  MANY,
  SHORT_NAME,
} from '../support/faults/disk-limits.ts';
import { canRun, needs } from '../support/needs.ts';
import { until } from '../support/patience.ts';
import {
  assertFails,
  endOf,
  type Installation,
  newInstallation,
  type Service,
  TOGETHER,
} from '../support/program.ts';
import { freePort } from '../support/servers/free-port.ts';
import { bearer } from '../support/service.ts';

const PRODUCTION = { NODE_ENV: 'production' };
const LONG_NAME = 'Alder '.repeat(2_000);

/** Number of fsyncs of a thread that succeed first: enough to start and to acknowledge some writes. */
const FSYNCS_THAT_WORK = 20;

const NEEDS_STRACE = needs('strace', canRun('strace', '-o', '/dev/null', 'true'));

describe('fsync fails at a commit', NEEDS_STRACE, () => {
  it('no success response, the service exits, and the next start works', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION, wrap: failingFsync });
    const healthy = await createUntilFailure(service, token, { name: SHORT_NAME, limit: MANY });
    assert.ok(healthy.acknowledged.length > 0, 'no write was acknowledged before');
    assert.ok(healthy.failure === undefined || healthy.failure.error === 50300);
    assert.ok(healthy.failure?.isUnknown !== false, 'the failed write may be on disk');
    await endsByItself(service);

    const again = await installation.serve({ env: PRODUCTION });
    const later = await createUntilFailure(again, token, { name: SHORT_NAME, from: 10_000n, limit: 3 });
    assert.equal(later.failure, undefined);
    assert.equal((await again.stop()).code, 0);
    const { ids, integrity } = inspect(installation.file);
    assert.equal(integrity, 'ok');
    assert.deepEqual(
      [...healthy.acknowledged, ...later.acknowledged].filter((id) => !ids.has(id)),
      [],
    );
    // The outcome of the failed write is unknown, as its response says.
    assert.ok(ids.size <= healthy.acknowledged.length + later.acknowledged.length + 1);
  });
});

describe('the index of the write-ahead log (-shm) cannot grow at a commit', NEEDS_STRACE, () => {
  it('outcome unknown; the service goes on, and a plant may exist after a crash', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    // Makes the first block of the index, for some 4,000 pages of the log. Keeps the log, so that it needs more.
    const reader = new DatabaseSync(installation.file);
    reader.exec('BEGIN; SELECT count(*) FROM plants');
    const service = await installation.serve({
      env: PRODUCTION,
      wrap: (command) => failing(`${installation.file}-shm`, 'write,pwrite64', 'ENOSPC', command),
    });
    const written = await createUntilFailure(service, token, { name: LONG_NAME, limit: MANY });
    assert.ok(written.failure !== undefined && written.acknowledged.length > 100, 'the log did not grow');
    assert.deepEqual([written.failure.error, written.failure.isUnknown], [50300, true]);
    assert.equal((await list(service, token))?.count, written.acknowledged.length);
    reader.close();
    service.kill('SIGKILL');
    await service.ended;
    const again = await installation.serve({ env: PRODUCTION });
    assert.equal((await again.stop()).code, 0);
    const { ids, integrity } = inspect(installation.file);
    assert.equal(integrity, 'ok');
    assert.deepEqual(
      written.acknowledged.filter((id) => !ids.has(id)),
      [],
    );
    assert.equal(ids.size, written.acknowledged.length + 1, 'the failed write was on disk');
  });
});

describe('no space for the index of the write-ahead log (-shm)', NEEDS_STRACE, () => {
  for (const command of [['check'], ['token', 'list'], ['serve', '--port', '0', '--admin-port', '0']])
    it(`${command.slice(0, 2).join(' ')} → the message says to free space`, async (t) => {
      const installation = await newInstallation(t);
      await installation.token('alice');
      const shm = `${installation.file}-shm`;
      const wrap = (program: Command) => failing(shm, 'write,pwrite64', 'ENOSPC', program);
      assertFails(
        await installation.runProcess(command, { wrap }),
        /^plant-store: [^\n]+plants\.db[^\n]+\(SQLite code 4874\): free space on the disk or raise the quota\n$/,
      );
    });
});

it('no space for the first tables of a new store → the message says that the file was created', async (t) => {
  const installation = await newInstallation(t);
  for (const command of [
    ['migrate'],
    ['token', 'create', 'alice'],
    ['serve', '--port', '0', '--admin-port', '0'],
  ]) {
    const file = join(installation.folder, `${command[0]}.db`);
    const env = { DATABASE_URL: `sqlite:${file}` };
    assertFails(
      await installation.runProcess(command, { env, wrap: (program) => limitedFiles(program, 16) }),
      /^plant-store: cannot open the store .+\.db: [^\n]+: free space on the disk[^\n]+\. The file was created, without plants\n$/,
    );
    assert.ok(existsSync(file));
  }
});

it('no space for the write of a command → the message names the store', NEEDS_STRACE, async (t) => {
  const installation = await newInstallation(t);
  await installation.token('alice');
  const wrap = (command: Command) => failing(`${installation.file}-wal`, 'pwrite64', 'ENOSPC', command);
  assertFails(
    await installation.runProcess(['token', 'create', 'bob'], { wrap }),
    /^plant-store: the store .+plants\.db failed: database or disk is full \(SQLite code 13\): free space on the disk/,
  );
});

describe('the files next to a store cannot be opened', NEEDS_STRACE, () => {
  it('the disk reports an error → the message does not name permissions', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('alice');
    const wrap = (command: Command) => failing(`${installation.file}-shm`, 'openat', 'EIO', command);
    assertFails(
      await installation.runProcess(['token', 'list'], { wrap }),
      /^plant-store: cannot open the store .+: .*\(SQLite code 14\): check the disk, and the log of the kernel\n$/,
    );
    assert.ok(!existsSync(`${installation.file}-new`), 'a file stays that no program needs');
  });

  it('no inode is left → the message says so', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('alice');
    const { file } = installation;
    const wrap = (command: Command) => failing([`${file}-wal`, `${file}-new`], 'openat', 'ENOSPC', command);
    assertFails(
      await installation.runProcess(['token', 'list'], { wrap }),
      /^plant-store: cannot open the store .+: .*free space or inodes/,
    );
  });
});

describe('the disk fails at the checkpoint of an import', NEEDS_STRACE, () => {
  it('exit code 1, with the file, the reason and how to continue', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('bob');
    const file = join(installation.folder, 'plants.ndjson');
    // More than the 16 MiB between two checkpoints.
    const lines = Array.from({ length: 1_800 }, (_, id) => `{"id":${id},"name":"${'x'.repeat(10_000)}"}\n`);
    await writeFile(file, lines.join(''));
    const wrap = (command: Command) => failing(installation.file, 'fsync,fdatasync', 'EIO', command);
    assertFails(
      await installation.runProcess(['import', 'alice', file], { wrap }),
      /the store .+plants\.db failed: disk I\/O error \(SQLite code \d+\): check the disk, [^;]+; \d+ plants created, perhaps up to \d+ more; /,
    );
  });
});

describe('the disk cannot be read', NEEDS_STRACE, () => {
  it('check → says so, and reports no fault of the store', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('alice');
    // The first read opens the file. cspell:ignore pread
    const wrap = (command: Command) => failing(installation.file, 'pread64', 'EIO:when=2+', command);
    assertFails(
      await installation.runProcess(['check'], { wrap }),
      /^plant-store: the store .+plants\.db failed: disk I\/O error \(SQLite code \d+\): check the disk/,
    );
  });

  for (const args of [['check'], ['backup', 'plants.bak'], ['export', 'alice', 'out.ndjson']])
    it(`${args[0]} in the middle of the store → the message names the disk, before any backup`, async (t) => {
      const installation = await newInstallation(t);
      await installation.token('alice');
      await fillStore(installation.databaseUrl, 'alice', 5_000, 400);
      const wrap = (command: Command) => failing(installation.file, 'pread64', 'EIO:when=40+', command);
      const { code, stderr } = await installation.runProcess(args, { wrap });
      assert.equal(code, 1);
      assert.match(
        stderr,
        /^plant-store: .+(?:check the disk, and|look into) the log of the kernel[^\n]*\n$/,
      );
      if (args[0] === 'check') assert.match(stderr, / cannot be read: .*error code=8458: check the disk/);
    });
});

describe('a new file', { ...NEEDS_STRACE, ...TOGETHER }, () => {
  it('first start → each new name is durable before the store is used', async (t) => {
    const installation = await newInstallation(t);
    const env = { DATABASE_URL: `sqlite:${join(installation.folder, 'new', 'plants.db')}` };
    const steps = ['mkdir new', 'fsync .', 'create new/plants.db', 'fsync new'];
    assert.deepEqual((await stepsOf(installation, ['migrate'], env)).slice(0, steps.length), steps);
  });

  for (const [args, name] of [
    [['backup', 'backup.db'], 'backup.db'],
    [['export', 'alice', 'out.ndjson'], 'out.ndjson'],
  ] as const)
    it(`${args[0]} → its content is durable before its name exists, and its name before the end`, async (t) => {
      const installation = await newInstallation(t);
      await installation.token('alice');
      const steps = [`fsync ${name}.partial`, `link ${name}`, 'fsync .'];
      assert.deepEqual((await stepsOf(installation, args)).slice(-steps.length), steps);
    });
});

describe('the name of a new file cannot be made durable', { ...NEEDS_STRACE, ...TOGETHER }, () => {
  async function prepare(t: TestContext) {
    const installation = await newInstallation(t);
    await installation.token('alice');
    const folder = join(installation.folder, 'out');
    await mkdir(folder);
    return { ...installation, out: folder };
  }
  const commands = [
    ['backup', 'plants.bak'],
    ['export', 'alice', 'out.ndjson'],
  ];

  for (const [name = '', ...rest] of commands) {
    const args = (folder: string) => [name, ...rest.slice(0, -1), join(folder, rest.at(-1) ?? '')];

    it(`${name}: the folder cannot be synced → exit code 1, and no file is left`, async (t) => {
      const { runProcess, out } = await prepare(t);
      const wrap = (command: Command) => failing(out, 'fsync', 'EIO', command);
      assertFails(
        await runProcess(args(out), { wrap }),
        /^plant-store: cannot write .+: the disk reports an error/,
      );
      assert.deepEqual(await readdir(out), []);
    });

    it(`${name}: its file system does not sync folders → succeeds`, async (t) => {
      const { runProcess, out } = await prepare(t);
      const wrap = (command: Command) => failing(out, 'fsync', 'EINVAL', command);
      const { code, stderr } = await runProcess(args(out), { wrap });
      assert.equal(code, 0, stderr);
    });

    it(`${name}: the partial name cannot be removed → the message says what is left`, async (t) => {
      const { runProcess, out } = await prepare(t);
      const partial = `${args(out).at(-1)}.partial`;
      const wrap = (command: Command) => failing(partial, 'unlink,unlinkat', 'EACCES', command);
      const { code, stderr } = await runProcess(args(out), { wrap });
      assert.equal(code, 1);
      assert.match(stderr, new RegExp(`^plant-store: cannot write .*; remove ${partial}\n$`));
      assert.deepEqual(await readdir(out), [basename(partial)]);
    });
  }

  it('first start on a file system that does not sync folders → succeeds', async (t) => {
    const { runProcess, out } = await prepare(t);
    const wrap = (command: Command) => failing(out, 'fsync', 'EINVAL', command);
    const { code, stderr } = await runProcess(['migrate', '--database-url', `sqlite:${join(out, 'p.db')}`], {
      wrap,
    });
    assert.equal(code, 0, stderr);
  });
});

describe(
  'the folder of a store cannot be synced, so that the name of its log may not be durable',
  NEEDS_STRACE,
  () => {
    for (const args of [
      ['serve', '--port', '0', '--admin-port', '0'],
      ['import', 'alice', 'plants.ndjson'],
      ['token', 'create', 'alice'],
    ])
      it(`${args[0]} → exit code 1, and nothing is written`, async (t) => {
        const installation = await newInstallation(t);
        await installation.token('bob');
        await writeFile(join(installation.folder, 'plants.ndjson'), '{"id":1,"name":"Alder"}\n');
        const wrap = (command: Command) => failing(installation.folder, 'fsync', 'EIO', command);
        assertFails(
          await installation.runProcess(args, { wrap }),
          /^plant-store: cannot open the store .+plants\.db: EIO: .*: check the disk, and the log of the kernel\n$/,
        );
        assert.equal(inspect(installation.file).ids.size, 0);
      });
  },
);

it('a folder that the user may not read, and so cannot sync → writes succeed', async (t) => {
  const installation = await newInstallation(t);
  await installation.token('alice');
  await chmod(installation.folder, 0o300);
  // Root may read every folder.
  const wrap = (command: Command) =>
    process.getuid?.() === 0
      ? ['setpriv', '--bounding-set', '-all', '--inh-caps', '-all', ...command]
      : command;
  const ended = installation.runProcess(['token', 'create', 'bob'], { wrap });
  const { code, stderr } = await ended.finally(() => chmod(installation.folder, 0o700));
  assert.equal(code, 0, stderr);
});

describe('export to a file system without hard links', NEEDS_STRACE, () => {
  const wrap = (command: Command) => {
    const fault = ['-e', 'trace=link,linkat', '-e', 'inject=link,linkat:error=EPERM'];
    return ['strace', '-D', '-f', '--seccomp-bpf', '-qq', '-o', '/dev/null', ...fault, ...command];
  };

  for (const isTaken of [false, true])
    it(`name ${isTaken ? 'created by another process meanwhile → not overwritten' : 'free → created'}`, async (t) => {
      const { start, folder } = await newInstallation(t);
      const url = await postgres.freshUrl(t);
      await migrateStore(url);
      const file = join(folder, 'out.ndjson');
      const other = new pg.Client({ connectionString: url });
      await other.connect();
      try {
        await other.query('BEGIN; LOCK TABLE plants IN ACCESS EXCLUSIVE MODE');
        const program = start(['export', 'alice', file], { env: { DATABASE_URL: url }, wrap });
        await until(() => existsSync(`${file}.partial`));
        if (isTaken) await writeFile(file, 'other');
        await other.query('ROLLBACK');
        const ended = await endOf(program);
        if (isTaken) assertFails(ended, /out\.ndjson already exists; choose another name/);
        else assert.equal(ended.code, 0, ended.stderr);
      } finally {
        await other.end();
      }
      assert.equal(await readFile(file, 'utf8'), isTaken ? 'other' : '');
      assert.ok(!existsSync(`${file}.partial`));
    });
});

describe('file damaged while the service runs', () => {
  for (const { name, ask } of [
    { name: 'a write', ask: (service: Service, token: string) => create(service, token, 1n, SHORT_NAME) },
    { name: 'a list', ask: (service: Service, token: string) => list(service, token) },
  ]) {
    it(`${name} → the service exits, without a success response`, async (t) => {
      const installation = await newInstallation(t);
      const token = await installation.token('alice');
      await fillStore(installation.databaseUrl, 'alice', 50_000, 100);
      const service = await installation.serve({ env: PRODUCTION });
      await damage(installation.file);
      const answer = await ask(service, token);
      assert.ok(answer === undefined || answer.error === 50300, JSON.stringify(answer));
      await endsByItself(service);
    });
  }
});

describe('full disk', TOGETHER, () => {
  it('file size limit → writes get 503, reads work, and the service recovers', CAN_LIFT_LIMITS, async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION, wrap: (command) => limitedFiles(command) });
    const acknowledged = await fillAndRecover(service, token, async () => liftLimit(service));
    assert.equal((await service.stop()).code, 0);
    isKept(installation.file, acknowledged);
  });

  it('import whose checkpoint fails → succeeds, since all plants are committed', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('bob');
    await fillStore(installation.databaseUrl, 'bob', 400_000, 100);
    const lines = Array.from(
      { length: 170_000 },
      (_, id) => `{"id":${id + 1},"name":"${`plant ${id} `.padEnd(100, 'x')}"}\n`,
    );
    const file = join(installation.folder, 'plants.ndjson');
    await writeFile(file, lines.join(''));
    const { size } = await stat(installation.file);
    // The store cannot grow, but its write-ahead log can, up to the same size.
    const limit = Math.floor(size / 1_024) - 1;
    const { code, stdout, stderr } = await endOf(
      installation.start(['import', 'alice', file], { wrap: (command) => limitedFiles(command, limit) }),
    );
    assert.deepEqual([code, stdout], [0, '170000 plants of alice created\n'], stderr);
    assert.match(
      stderr,
      /^plant-store: .+plants\.db-wal could not be emptied .*move and copy it with the store\n$/m,
    );
    // No checkpoint could move the plants into the store.
    assert.equal((await stat(installation.file)).size, size);
    assert.equal(inspect(installation.file).ids.size, 400_000 + 170_000);
  });

  for (const [when, plants] of [
    ['at its commit', 4_000],
    ['before its commit', 60_000],
  ] as const)
    it(`copy that fails ${when} → says that nothing was copied, and what to do with the new store`, async (t) => {
      const installation = await newInstallation(t);
      await installation.token('bob');
      await fillStore(installation.databaseUrl, 'bob', plants, 100);
      const copy = join(installation.folder, 'copy.db');
      const wrap = (command: Command) => limitedFiles(command);
      assertFails(
        await installation.runProcess(['copy', installation.databaseUrl, `sqlite:${copy}`], { wrap }),
        /copy\.db failed: .* the quota.*; nothing was copied; copy to .+copy\.db again, or remove it with its -wal and -shm\n$/,
      );
      assert.equal(inspect(copy).ids.size, 0);
    });

  for (const isStuck of [false, true]) {
    const what = isStuck ? ', and whose lock file cannot be removed' : '';
    it(`stop whose checkpoint fails${what} → exit code 0, and a line names the log that keeps the writes`, async (t) => {
      const installation = await newInstallation(t);
      const token = await installation.token('alice');
      await fillStore(installation.databaseUrl, 'bob', 10_000, 100);
      const { size } = await stat(installation.file);
      const limit = Math.floor(size / 1_024) - 1;
      const service = await installation.serve({
        env: PRODUCTION,
        wrap: (command) => limitedFiles(command, limit),
      });
      const written = await createUntilFailure(service, token, { name: LONG_NAME, from: -16n, limit: 16 });
      assert.equal(written.failure, undefined);
      if (isStuck) {
        await rm(`${installation.file}-service`);
        await mkdir(`${installation.file}-service`);
      }
      assert.equal((await service.stop()).code, 0);
      const left = service.log.find(({ msg }) =>
        /^the write-ahead log could not be emptied/.test(String(msg)),
      );
      assert.deepEqual(
        [left?.level, left?.file],
        [40, `${installation.file}-wal`],
        JSON.stringify(service.log),
      );
      const { ids, integrity } = inspect(installation.file);
      assert.deepEqual([ids.size, integrity], [10_000 + written.acknowledged.length, 'ok']);
    });
  }

  const mounts = needs('permission to mount', canRun('unshare', ...ownMounts('true')));
  it('file system full → writes get 503, reads work, and the service recovers', mounts, async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const disk = join(installation.folder, 'disk');
    await mkdir(disk);
    const file = join(disk, 'plants.db');
    const service = await installation.serve({
      env: { ...PRODUCTION, DATABASE_URL: `sqlite:${file}` },
      wrap: (command) => smallDisk(disk, installation.file, command),
    });
    const inside = join('/proc', String(service.pid), 'root');
    const acknowledged = await fillAndRecover(service, token, () => rm(join(inside, disk, 'filler')));
    // The file system disappears with the service, so the test checks a copy.
    const copy = join(installation.folder, 'copy.db');
    for (const part of ['', '-wal']) await copyFile(join(inside, file + part), copy + part);
    assert.equal((await service.stop()).code, 0);
    isKept(copy, acknowledged);
  });
});

/** Runs a command. Resolves to the files and folders that it created, linked and synced in its folder, in order. */
async function stepsOf(
  { folder, runProcess }: Installation,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<readonly string[]> {
  const trace = join(folder, 'trace');
  // cspell:ignore mkdirat openat linkat unlinkat
  const calls = 'trace=mkdir,mkdirat,openat,link,linkat,fsync,fdatasync';
  const wrap = (command: Command) => ['strace', '-f', '-y', '-qq', '-o', trace, '-e', calls, ...command];
  const { code, stderr } = await runProcess(args, { env, wrap });
  assert.equal(code, 0, stderr);
  return (await readFile(trace, 'utf8')).split('\n').flatMap((line) => {
    const [, call = ''] = /^\d+ +(\w+)\(/.exec(line) ?? [];
    const path = /.*"([^"]+)"/.exec(line)?.[1] ?? /^[^<]*<([^>]+)>/.exec(line)?.[1] ?? '/';
    const name = relative(folder, path) || '.';
    if (call === '' || / = -1 /.test(line) || /^\.(\.|cache)/.test(name)) return [];
    if (call === 'openat') return line.includes('O_CREAT') ? [`create ${name}`] : [];
    return [`${call.replace(/at$/, '').replace('fdatasync', 'fsync')} ${name}`];
  });
}

/** Fills the disk until a write is rejected, frees space, and writes again. Resolves to the acknowledged ids. */
async function fillAndRecover(
  service: Service,
  token: string,
  freeSpace: () => Promise<void>,
): Promise<readonly bigint[]> {
  const full = await createUntilFailure(service, token, { name: LONG_NAME, limit: MANY });
  assert.ok(full.acknowledged.length > 0, 'no write was acknowledged before');
  assert.deepEqual(full.failure, { status: 503, error: 50300, retryAfter: '1', isUnknown: false });
  for (let reads = 0; reads < 5; reads += 1) {
    assert.deepEqual(await list(service, token), { status: 200, count: full.acknowledged.length });
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
  }

  await freeSpace();
  const after = await createUntilFailure(service, token, { name: LONG_NAME, from: 10_000n, limit: 20 });
  assert.equal(after.failure, undefined);
  const acknowledged = [...full.acknowledged, ...after.acknowledged];
  assert.deepEqual(await list(service, token), { status: 200, count: acknowledged.length });
  return acknowledged;
}

/** Asserts that the service exits with 1 and logs one fatal line with the reason. */
async function endsByItself(service: Service): Promise<void> {
  const { code, signal, stderr } = await endOf(service);
  assert.deepEqual({ code, signal, stderr }, { code: 1, signal: null, stderr: '' });
  const fatal = service.log.filter(({ level }) => level === 60);
  assert.equal(fatal.length, 1, JSON.stringify(service.log.slice(-5)));
  assert.match(String(fatal[0]?.msg), /fatal store error; stopping/);
  assert.match(JSON.stringify(fatal[0]?.err), /plants\.db failed: .*SQLite code \d+/);
}

/** Asserts that a store is sound and has exactly these plants. */
function isKept(file: string, acknowledged: readonly bigint[]): void {
  const { ids, integrity } = inspect(file);
  assert.equal(integrity, 'ok');
  assert.deepEqual(ids, new Set(acknowledged));
}

/** -D runs strace as a background process, so that the pid and the exit code are the program's. */
function failingFsync(command: Command): Command {
  const calls = 'fsync,fdatasync';
  const fault = `inject=${calls}:error=EIO:when=${FSYNCS_THAT_WORK + 1}+`;
  return ['strace', '-D', '-f', '-qq', '-o', '/dev/null', '-e', `trace=${calls}`, '-e', fault, ...command];
}

/** Makes calls on some files fail. */
function failing(files: string | readonly string[], calls: string, error: string, command: Command): Command {
  const faults = [
    ...[files].flat().flatMap((file) => ['-P', file]),
    '-e',
    `trace=${calls}`,
    '-e',
    `inject=${calls}:error=${error}`,
  ];
  return ['strace', '-D', '-f', '--seccomp-bpf', '-qq', '-o', '/dev/null', ...faults, ...command];
}

/** Runs a command in a private mount namespace, which ends with it. Needs root or user namespaces. */
function ownMounts(...command: Command): Command {
  const isRoot = process.getuid?.() === 0;
  return [...(isRoot ? [] : ['--user', '--map-root-user']), '--mount', ...command];
}

/** Runs a command with a file system of 1 MiB, half full, with a store on it. */
function smallDisk(folder: string, store: string, command: Command): Command {
  const script = [
    'mount -t tmpfs -o size=1m tmpfs "$0"',
    'head -c 524288 /dev/zero > "$0/filler"',
    'cp "$1" "$0/plants.db"',
    'shift',
    'exec "$@"',
  ].join(' && ');
  return ['unshare', ...ownMounts('bash', '-c', script, folder, store, ...command)];
}

interface Listed {
  readonly status: number;
  readonly error?: number;
  readonly count?: number;
}

/** Undefined when no complete response arrived. */
async function list(service: Service, token: string): Promise<Listed | undefined> {
  try {
    const response = await fetch(`${service.url}/plants`, { headers: bearer(token) });
    const body: { error: number } | readonly unknown[] = JSON.parse(await response.text());
    return { status: response.status, ...('error' in body ? { error: body.error } : { count: body.length }) };
  } catch {
    return undefined;
  }
}

type Wrap = (command: readonly string[]) => readonly string[];

describe('no disk space for the log', CAN_LIFT_LIMITS, () => {
  it('the service continues; stderr reports it once, and buffered lines are written after space is freed', async (t) => {
    const installation = await newInstallation(t);
    const file = join(installation.folder, 'log');
    const port = await freePort();
    const service = installation.start(['serve', '--port', String(port), '--admin-port', '0'], {
      env: PRODUCTION,
      wrap: (command) => ['bash', '-c', 'ulimit -S -f 256 && exec "$@" > "$0"', file, ...command],
    });
    let isOver = false;
    void service.ended.then(() => {
      isOver = true;
    });
    const untilLogged = async (text: string): Promise<void> => {
      while (!(await readFile(file, 'utf8').catch(() => '')).includes(text)) {
        assert.ok(!isOver, `the service ended: ${service.output.stderr}`);
        await setTimeout(20);
      }
    };
    const ask = async (): Promise<string> => {
      const response = await fetch(`http://127.0.0.1:${port}/plants`);
      await response.arrayBuffer();
      assert.equal(response.status, 401);
      return String(response.headers.get('x-request-id'));
    };

    await untilLogged('"msg":"serving"');
    let asked: readonly string[] = [];
    for (let round = 0; round < 50; round += 1)
      asked = await Promise.all(Array.from({ length: 50 }, () => ask()));
    assert.equal((await stat(file)).size, 256 * 1024, 'the disk is full');
    liftLimit(service);
    await ask();
    await untilLogged(asked.at(-1) ?? '');
    service.kill('SIGTERM');
    const { code, stderr } = await endOf(service);
    assert.equal(code, 0);
    assert.match(stderr, /^plant-store: the log cannot be written: EFBIG: [^\n]+\n$/);
  });

  it('the process ends within a line → the next start begins another line', async (t) => {
    const { folder, start } = await newInstallation(t);
    const file = join(folder, 'log');
    const append: Wrap = (command) => ['bash', '-c', 'exec "$@" >> "$0"', file, ...command];
    const serve = (wrap: Wrap) =>
      start(['serve', '--port', '0', '--admin-port', '0'], { env: PRODUCTION, wrap });
    const earlier = `${'x'.repeat(1_023)}\n`.repeat(1_024).slice(20);
    await writeFile(file, earlier);

    const full = serve((command) => limitedFiles(append(command), 1_024));
    await until(() => full.output.stderr.includes('the log cannot be written'));
    full.kill('SIGTERM');
    assert.equal((await endOf(full)).code, 0);
    const [torn, ...none] = (await readFile(file, 'utf8')).slice(earlier.length).split('\n');
    assert.deepEqual([torn?.length, none], [20, []]);

    const service = serve(append);
    const added = async (): Promise<readonly string[]> =>
      (await readFile(file, 'utf8')).slice(earlier.length).split('\n').slice(0, -1);
    await until(async () => (await added()).some((line) => line.includes('"msg":"serving"')));
    service.kill('SIGTERM');
    assert.equal((await endOf(service)).code, 0);
    const [first, ...lines] = await added();
    assert.equal(first, torn);
    const messages = lines.map((line): unknown => JSON.parse(line).msg);
    assert.ok(messages.includes('serving'), messages.join());

    // After a whole line, no empty one.
    const again = serve(append);
    const count = (await added()).length;
    await until(async () => (await added()).slice(count).some((line) => line.includes('"msg":"serving"')));
    again.kill('SIGTERM');
    await endOf(again);
    assert.ok(!(await added()).includes(''));
  });
});
