// cspell:words statfs
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it, type TestContext } from 'node:test';
import { loadConfig } from '../../src/config.ts';
import { logTo } from '../../src/observability/log.ts';
import { startServer } from '../../src/server.ts';
import { canOthersEnter } from '../../src/store/sqlite/files/exposed-mode.ts';
import { execute, freshFolder, rowsOf } from '../support/engines.ts';
import { holdMigration } from '../support/faults/hold-migration.ts';
import { canRun, hasIpv6, needs } from '../support/needs.ts';
import { until } from '../support/patience.ts';
import {
  assertFails,
  endOf,
  type LogLine,
  newInstallation,
  type ProgramOptions,
  TOGETHER,
} from '../support/program.ts';
import type { Ended } from '../support/run-command.ts';
import { freePort, listenOnFreePort } from '../support/servers/free-port.ts';

const NEEDS_STRACE = needs('strace', canRun('strace', '-o', '/dev/null', 'true'));

/** Runs a command under strace, in the background: pid and exit code are those of the command. */
const STRACE = ['strace', '-D', '-f', '-qq', '-o', '/dev/null'];

/** Examples of invalid flags and variables. config.test.ts has all of them. */
const badSettings: readonly {
  name: string;
  flags: Readonly<Record<string, string | undefined>>;
  env?: Readonly<Record<string, string>>;
}[] = [
  { name: '--port', flags: { '--port': '65536' } },
  { name: '--database-url', flags: { '--database-url': 'mysql://somewhere' } },
  { name: 'ADMIN_PORT', flags: { '--admin-port': undefined }, env: { ADMIN_PORT: '80.5' } },
  { name: 'BASE_PATH', flags: {}, env: { BASE_PATH: '/v1/' } },
];

const isAboutFiles = ({ msg }: LogLine): boolean => String(msg).includes('ulimit -n');

describe('serve', TOGETHER, () => {
  for (const { name, flags, env = {} } of badSettings) {
    it(`invalid ${name} → does not start, and names it`, async (t) => {
      assertFails(await failToServe(t, flags, { env }), new RegExp(`^plant-store: ${name} .*must `));
    });
  }

  it('settings from flags and variables → flags win', async (t) => {
    const installation = await newInstallation(t);
    const env = { PORT: 'no port', ADMIN_PORT: '1', BASE_PATH: '/variable' };
    const fromVariable = await installation.serve({ env });
    assert.match(fromVariable.url, /:\d{2,5}\/variable$/);
    assert.doesNotMatch(fromVariable.adminUrl, /:1$/);
    await fromVariable.stop();
    const fromFlag = await installation.serve({ env, flags: ['--base-path', '/flag'] });
    assert.match(fromFlag.url, /\/flag$/);
    assert.equal((await fetch(`${fromFlag.url}/openapi.json`)).status, 200);
  });

  for (const [what, content] of [
    ['no file', undefined],
    ['an empty file', ''],
  ] as const)
    it(`${what} → logs that a store was created, at the first start only`, async (t) => {
      const installation = await newInstallation(t);
      if (content !== undefined) await writeFile(installation.file, content);
      const created: unknown[] = [];
      for (const _ of [1, 2]) {
        const service = await installation.serve({ env: { NODE_ENV: 'production' } });
        created.push(...service.log.filter(({ msg }) => msg === 'created a new store'));
        assert.equal((await service.stop()).code, 0);
      }
      const [line, ...others] = created;
      assert.ok(JSON.stringify(line).includes(`"store":"${installation.file}"`), JSON.stringify(created));
      assert.deepEqual(others, []);
    });

  it('a store of an earlier version → logs its migrations before it serves, at the first start only', async (t) => {
    const installation = await newInstallation(t);
    const folder = new URL('../../src/store/sqlite/migrations/', import.meta.url);
    const [first = '', ...later] = (await readdir(folder)).sort();
    await execute(
      installation.databaseUrl,
      `CREATE TABLE migrations (name TEXT PRIMARY KEY) STRICT;
       ${await readFile(new URL(first, folder), 'utf8')}
       INSERT INTO migrations VALUES ('${first}')`,
    );
    for (const expected of [['migrating the store', 'serving'], ['serving']]) {
      const service = await installation.serve();
      const lines = service.log.filter(({ msg }) => /^(migrating the store|serving)$/.test(String(msg)));
      assert.deepEqual(
        lines.map(({ msg }) => msg),
        expected,
      );
      if (lines.length > 1) assert.deepEqual(lines[0]?.migrations, later);
      await service.stop();
    }
  });

  it('a migration waits for a lock of another session of PostgreSQL → logs it, then serves', async (t) => {
    const installation = await newInstallation(t);
    const migration = await holdMigration(t);
    const starting = installation.serve({ env: { DATABASE_URL: migration.databaseUrl } });
    const pausing = `SELECT 1 FROM pg_stat_activity
                      WHERE datname = current_database() AND state = 'idle in transaction' AND query LIKE 'ROLLBACK TO %'`;
    await Promise.race([
      starting,
      until(async () => (await rowsOf(migration.databaseUrl, pausing)).length > 0),
    ]);
    await migration.release();
    const service = await starting;
    const waits = service.log.filter(({ msg }) => /waits for a lock/.test(String(msg)));
    assert.equal(waits.length, 1);
  });

  for (const flag of ['--port', '--admin-port']) {
    it(`${flag} in use → message, and no store is created`, async (t) => {
      const port = await takePort(t);
      const file = join(await freshFolder(), 'data', 'plants.db');
      const ended = await failToServe(t, { [flag]: port, '--database-url': `sqlite:${file}` });
      assert.equal(existsSync(dirname(file)), false);
      const variable = flag.slice(2).replace('-', '_').toUpperCase();
      assertFails(ended, new RegExp(`^plant-store: .*\\b${port}\\b.*in use.*${flag} \\(${variable}\\)\n$`));
    });
  }

  it(
    'limit on open files below --max-connections → warning',
    needs('Linux', process.platform === 'linux'),
    async (t) => {
      const installation = await newInstallation(t);
      const wrap = (command: readonly string[]) => [
        'bash',
        '-c',
        'ulimit -n 500 && exec "$@"',
        'bash',
        ...command,
      ];
      const tooMany = await installation.serve({ flags: ['--max-connections', '490'], wrap });
      const line = await tooMany.logged(isAboutFiles);
      assert.deepEqual([line.level, line.maxFiles, line.maxConnections], [40, 500, 490]);
      await tooMany.stop();
      const fewer = await installation.serve({ flags: ['--max-connections', '400'], wrap });
      await fewer.stop();
      assert.ok(!fewer.log.some(isAboutFiles));
    },
  );

  it('both ports are the same → a message that names both settings, and no store is created', async (t) => {
    const installation = await newInstallation(t);
    const port = String(await freePort());
    const flags = ['--port', port, '--admin-port', port];
    assertFails(
      await installation.runProcess(['serve', ...flags]),
      new RegExp(
        `^plant-store: --(admin-)?port .* and --(admin-)?port .* are both ${port}; choose another port`,
      ),
    );
    assert.equal(existsSync(installation.file), false);
  });

  it('both ports are the same on two addresses, and one is in use → message about that one', async (t) => {
    const port = await takePort(t);
    const ended = await failToServe(t, { '--port': port, '--admin-host': '127.0.0.2', '--admin-port': port });
    assertFails(ended, new RegExp(`^plant-store: port ${port} of 127.0.0.1 is in use; .*--port \\(PORT\\)`));
  });

  it('both ports in use → one message', async (t) => {
    const [port, adminPort] = [await takePort(t), await takePort(t)];
    const ended = await failToServe(t, { '--port': port, '--admin-port': adminPort });
    assertFails(
      ended,
      new RegExp(`^plant-store: .*\\b${port}\\b.*\\(PORT\\).*\\b${adminPort}\\b.*\\(ADMIN_PORT\\)\n$`),
    );
  });

  it('port in use, identity provider silent → exits without waiting for the keys', async (t) => {
    const silent = await takePort(t);
    const port = await takePort(t);
    const ended = await failToServe(t, {
      '--port': port,
      '--oidc-issuer': `http://127.0.0.1:${silent}`,
      '--oidc-audience': 'plants',
    });
    // A process that waits for the keys logs that they could not be read.
    assertFails(ended, /^plant-store: .*in use/);
  });

  const unprivileged = withoutLowPorts();
  it(
    'port reserved for root → says so and names --port',
    needs('a user without low ports', unprivileged !== undefined),
    async (t) => {
      const ended = await failToServe(t, { '--port': '1' }, unprivileged);
      assertFails(ended, /^plant-store: .*\broot\b.*--port \(PORT\)\n$/);
    },
  );

  it('host name without an address → message', async (t) => {
    // A name that never resolves (RFC 6761 §6.4).
    const ended = await failToServe(t, { '--admin-host': 'nosuch.invalid' });
    assertFails(ended, /^plant-store: .*\bnosuch\.invalid\b.*--admin-host \(ADMIN_HOST\)\n$/);
  });

  it('link-local address without its interface → message', needs('IPv6', hasIpv6()), async (t) => {
    assertFails(
      await failToServe(t, { '--host': 'fe80::1' }),
      /^plant-store: fe80::1 .*\binterface\b.*--host \(HOST\)\n$/,
    );
  });

  for (const [error, message] of [
    ['EAFNOSUPPORT', /no IPv6, which ::1 needs; choose an IPv4 address with --host \(HOST\)/],
    ['EMFILE', /too many files are open \(EMFILE\); raise the limit/],
  ] as const)
    it(`a socket cannot be created (${error}) → message`, NEEDS_STRACE, async (t) => {
      const wrap = (command: readonly string[]) => withFailing('socket', error, command);
      assertFails(await failToServe(t, { '--host': '::1' }, { wrap }), message);
    });

  it('no thread can be started for the store → message', NEEDS_STRACE, async (t) => {
    // Node starts six threads first.
    const wrap = (command: readonly string[]) => withFailing('clone,clone3', 'EAGAIN:when=7+', command);
    const { code, stderr } = await failToServe(t, {}, { wrap });
    assert.equal(code, 1);
    assert.match(
      stderr,
      /^plant-store: cannot open the store .+: no thread can be started .*; raise the limit/m,
    );
    assert.doesNotMatch(stderr, /^ +at /m);
  });

  it('address of another machine → message', async (t) => {
    // TEST-NET-3 (RFC 5737): an address that no machine has.
    assertFails(
      await failToServe(t, { '--host': '203.0.113.1' }),
      /^plant-store: .*\b203\.0\.113\.1\b.*--host \(HOST\)\n$/,
    );
  });
});

describe('store rejected, with its name in the message', TOGETHER, () => {
  it('folder not writable', async (t) => {
    // No user can create a file there, not even root.
    assertFails(await failToServe(t, { '--database-url': 'sqlite:/proc/plants.db' }), /\/proc\/plants\.db/);
  });

  it('path goes through a file', async (t) => {
    const { folder } = await newInstallation(t);
    await writeFile(join(folder, 'file'), '');
    const url = `sqlite:${join(folder, 'file', 'plants.db')}`;
    assertFails(await failToServe(t, { '--database-url': url }), /file\/plants\.db/);
  });

  it('path is a folder', async (t) => {
    const installation = await newInstallation(t);
    await mkdir(installation.file);
    assertFails(
      await failToServe(t, { '--database-url': installation.databaseUrl }),
      /plants\.db.*\bfolder\b.*\n$/,
    );
  });

  for (const command of [['migrate'], ['token', 'list']]) {
    it(`${command.join(' ')}: file is not a database → left unchanged`, async (t) => {
      const installation = await newInstallation(t);
      const text = 'Dear diary, today I planted an alder.\n'.repeat(200);
      await writeFile(installation.file, text);
      assertFails(await installation.run(command), /plants\.db.*not a database/);
      assert.equal(await readFile(installation.file, 'utf8'), text);
    });
  }

  it('database of another application → left unchanged', async (t) => {
    const installation = await newInstallation(t);
    using db = new DatabaseSync(installation.file);
    db.exec('CREATE TABLE diary (day TEXT)');
    assertFails(await installation.run(['migrate']), /plants\.db/);
    const tables = db.prepare('SELECT name FROM sqlite_schema ORDER BY name').all();
    assert.deepEqual(
      tables.map(({ name }) => name),
      ['diary'],
    );
  });
});

/** Flags of strace, from version 5.11 on, that put a number, as bytes, into the first field of the result of statfs(2). */
function asFileSystem(type: string): string[] {
  return ['-e', 'trace=statfs', '-e', `inject=statfs:poke_exit=@arg2=${type}`];
}

const NFS = asFileSystem('6969000000000000');
const OVERLAY = asFileSystem('30764c7900000000');
const NEEDS_POKE = needs('strace 5.11', canRun('strace', '-o', '/dev/null', ...NFS, 'true'));

for (const [name, fileSystem, warning] of [
  ['a network file system', NFS, /^the SQLite file is on a network file system/],
  ['the file system of a container', OVERLAY, /^the SQLite file is on an overlay file system/],
] as const)
  it(`store on ${name} → a warning`, NEEDS_POKE, async (t) => {
    const installation = await newInstallation(t);
    const wrap = (command: readonly string[]) => [...STRACE, ...fileSystem, ...command];
    const service = await installation.serve({ wrap });
    await service.logged(({ msg }) => warning.test(String(msg)));
    assert.equal((await service.stop()).code, 0);
  });

it(
  'store on a file system in memory → a warning',
  needs('Linux', process.platform === 'linux'),
  async (t) => {
    const folder = await mkdtemp('/dev/shm/plant-store-');
    t.after(() => rm(folder, { recursive: true }));
    const installation = await newInstallation(t);
    const service = await installation.serve({ flags: ['--database-url', `sqlite:${folder}/plants.db`] });
    await service.logged(({ msg }) => /^the SQLite file is on a file system in memory/.test(String(msg)));
    assert.equal((await service.stop()).code, 0);
  },
);

it(
  'every user can read or change the store → a warning, but not below a folder that others cannot enter',
  needs('a folder for temporary files that other users can enter', canOthersEnter(tmpdir())),
  async (t) => {
    const installation = await newInstallation(t);
    const [inner, other] = ['a', 'b'].map((name) => join(installation.folder, name));
    assert.ok(inner !== undefined && other !== undefined);
    for (const folder of [inner, other]) await mkdir(folder);
    const flags = ['--database-url', `sqlite:${inner}/plants.db`];
    const linked = ['--database-url', `sqlite:${other}/link.db`];
    await symlink(join(inner, 'plants.db'), join(other, 'link.db'));
    await installation.run(['token', 'create', 'alice', ...flags]);
    for (const [outer, folder, mode, warned, named = flags] of [
      [0o711, 0o711, 0o604, '604'],
      [0o711, 0o711, 0o602, '602'],
      [0o711, 0o711, 0o602, '602', linked],
      [0o711, 0o711, 0o640, undefined],
      [0o711, 0o770, 0o666, undefined],
      [0o770, 0o711, 0o666, undefined],
    ] as const) {
      await chmod(installation.folder, outer);
      await chmod(inner, folder);
      await chmod(other, 0o700);
      await chmod(join(inner, 'plants.db'), mode);
      const service = await installation.serve({ flags: named });
      assert.equal((await service.stop()).code, 0);
      const warning = service.log.find(({ msg }) => /^every user can read or change/.test(String(msg)));
      assert.equal(warning?.mode, warned);
    }
  },
);

it('wiring of the service fails → the store is closed', async () => {
  const file = join(await freshFolder(), 'plants.db');
  const config = {
    ...loadConfig({ databaseUrl: `sqlite:${file}`, port: '0', adminPort: '0' }, {}),
    trustProxy: 'no address',
  };
  const serviceLog = {
    ...logTo({ write: () => undefined }, 'info'),
    linesDropped: () => 0,
    reportDropped: () => undefined,
  };
  await assert.rejects(startServer({ config, serviceLog, onFatal: assert.fail }), /Invalid socket address/);
  // SQLite removes these files with the last connection.
  assert.deepEqual([existsSync(`${file}-wal`), existsSync(`${file}-shm`)], [false, false]);
});

/** Makes system calls of a program fail. */
function withFailing(calls: string, error: string, command: readonly string[]): readonly string[] {
  const faults = ['-e', `trace=${calls}`, '-e', `inject=${calls}:error=${error}`];
  return [...STRACE, '--seccomp-bpf', ...faults, ...command];
}

/** Options to run a program without permission for port 1. Undefined where that is impossible. */
function withoutLowPorts(): ProgramOptions | undefined {
  const firstForAll = '/proc/sys/net/ipv4/ip_unprivileged_port_start';
  if (!existsSync(firstForAll) || Number(readFileSync(firstForAll, 'utf8')) <= 1) return undefined;
  if (process.getuid?.() !== 0) return {};
  // Drops only this capability of root.
  const command = ['setpriv', '--bounding-set=-net_bind_service', '--inh-caps=-net_bind_service'] as const;
  const [name, ...flags] = command;
  if (!canRun(name, ...flags, 'true')) return undefined;
  return { wrap: (program) => [...command, ...program] };
}

/** Runs `serve` with flags that should make it fail. The default ports are free ones. */
async function failToServe(
  t: TestContext,
  flags: Readonly<Record<string, string | undefined>>,
  options?: ProgramOptions,
): Promise<Ended> {
  const installation = await newInstallation(t);
  const all = Object.entries({ '--port': '0', '--admin-port': '0', ...flags });
  const args = all.flatMap(([flag, value]) => (value === undefined ? [] : [flag, value]));
  const program = installation.start(['serve', ...args], options);
  // Stops a service that starts anyway, so that the test fails by its output instead of a timeout.
  program
    .logged(({ msg }) => msg === 'serving')
    .then(
      () => program.kill('SIGTERM'),
      () => undefined,
    );
  return endOf(program);
}

async function takePort(t: TestContext): Promise<string> {
  // Reads the connections, to notice their end: `close` waits for it.
  const server = createServer((socket) => socket.on('error', () => undefined).resume());
  t.after(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return String(await listenOnFreePort(server));
}
