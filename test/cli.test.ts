import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it, type TestContext } from 'node:test';
import manifest from '../package.json' with { type: 'json' };
import { mintSecret } from '../src/token.ts';
import { listenOnFreePort } from './free-port.ts';
import {
  type Ended,
  endOf,
  type Installation,
  newInstallation,
  ON_A_TERMINAL,
  type ProgramOptions,
  TOGETHER,
} from './program.ts';
import { bearer } from './service.ts';

/** Every command, the flags its help must show, and the arguments it needs. */
const commands: readonly { path: readonly string[]; shows: readonly string[]; args: readonly string[] }[] = [
  {
    path: [],
    shows: [
      'serve',
      'token',
      'import',
      'export',
      'copy',
      'backup',
      'check',
      'migrate',
      'openapi',
      '--help',
      '--version',
    ],
    args: [],
  },
  {
    path: ['serve'],
    shows: [
      ...['--host', '--port', '--admin-host', '--admin-port'],
      ...['--database-url', '--base-path', '--body-limit', '--log-level'],
      ...['Listening:', 'The store:', 'Limits:', 'Identity provider:', 'Log:'],
      ...['--port <port>', '0 to 65535', '--stop-delay <ms>', '--tls-key <file>', 'fatal, silent'],
      ...['HOST', 'PORT', 'ADMIN_HOST', 'ADMIN_PORT', 'DATABASE_URL', 'BASE_PATH', 'BODY_LIMIT', 'LOG_LEVEL'],
    ],
    args: [],
  },
  { path: ['token'], shows: ['create', 'list', 'revoke'], args: [] },
  {
    path: ['token', 'create'],
    shows: [
      '<owner>',
      '--scope',
      '--expires',
      '--name',
      '--database-url',
      'plants:read',
      'plants:write',
      '90d',
    ],
    args: ['alice'],
  },
  { path: ['token', 'list'], shows: ['--json', '--database-url'], args: [] },
  { path: ['token', 'revoke'], shows: ['<id>', '--database-url'], args: ['nosuchtoken1'] },
  {
    path: ['import'],
    shows: ['<owner>', '[file]', '--on-conflict', 'skip', '--format', '--json', '--database-url'],
    args: ['alice', 'plants.csv'],
  },
  {
    path: ['export'],
    shows: ['<owner>', '[file]', '--format', '--database-url'],
    args: ['alice', 'plants.csv'],
  },
  { path: ['copy'], shows: ['<from>', '<to>', '--json'], args: ['sqlite:a.db', 'sqlite:b.db'] },
  { path: ['backup'], shows: ['<file>', '--database-url'], args: ['backup.db'] },
  { path: ['check'], shows: ['--json', '--database-url'], args: [] },
  { path: ['migrate'], shows: ['--database-url'], args: [] },
  { path: ['openapi'], shows: ['--base-path'], args: [] },
];

describe('every command', TOGETHER, () => {
  for (const { path, shows, args } of commands) {
    const name = ['plant-store', ...path].join(' ');

    it(`${name} --help shows what it takes, on stdout, with exit code 0`, async (t) => {
      const installation = await newInstallation(t);
      const { code, stdout, stderr } = await installation.run([...path, '--help']);
      assert.equal(code, 0);
      assert.equal(stderr, '');
      for (const word of shows) assert.ok(stdout.includes(word), `${word} is not in the help:\n${stdout}`);
      assert.equal(existsSync(installation.file), false);
    });

    it(`${name} refuses a flag it does not know, and names it`, async (t) => {
      const installation = await newInstallation(t);
      refuses(await installation.run([...path, ...args, '--frobnicate']), /--frobnicate/);
      assert.equal(existsSync(installation.file), false);
    });
  }

  for (const { args, names } of [
    { args: ['frobnicate'], names: /frobnicate/ },
    { args: ['migrte'], names: /Did you mean migrate/ },
    { args: ['token', 'frobnicate'], names: /frobnicate/ },
    { args: ['token', 'create'], names: /owner/ },
    { args: ['token', 'revoke'], names: /id/ },
    { args: ['import'], names: /owner/ },
    { args: ['export'], names: /owner/ },
    { args: ['copy', 'sqlite:a.db'], names: /to/ },
    { args: ['backup'], names: /file/ },
    { args: ['token', 'create', 'alice', 'bob'], names: /too many arguments/ },
    { args: ['migrate', 'backwards'], names: /too many arguments/ },
    { args: ['token', 'create', 'alice', '--scope'], names: /--scope/ },
  ]) {
    it(`plant-store ${args.join(' ')} is refused, with what is wrong`, async (t) => {
      const installation = await newInstallation(t);
      const refused = await installation.run(args);
      refuses(refused, names);
      assert.match(refused.stderr, /^plant-store: .*\n(?:.*\n)*\(--help/);
      assert.equal(existsSync(installation.file), false);
    });
  }
});

it('plant-store --version prints that of the package', async (t) => {
  const installation = await newInstallation(t);
  const { code, stdout, stderr } = await installation.run(['--version']);
  assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: `${manifest.version}\n`, stderr: '' });
});

it('runs for a user without a home, whom no list of users has, as in a container', async (t) => {
  const installation = await newInstallation(t);
  const asNobody =
    process.getuid?.() === 0
      ? ['setpriv', '--reuid', '65432', '--regid', '65432', '--clear-groups']
      : ['unshare', '--user', '--map-user', '65432'];
  const wrap = (command: readonly string[]): readonly string[] => [
    ...['env', '--unset=HOME', '--unset=NODE_COMPILE_CACHE', ...asNobody],
    ...command,
  ];
  if ((await endOf(installation.start([], { wrap: () => wrap(['true']) }))).code !== 0) {
    t.diagnostic('not run: this user may not become another');
    return;
  }
  const { code, stdout, stderr } = await installation.run(['--version'], { wrap });
  assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: `${manifest.version}\n`, stderr: '' });
});

describe('token create', TOGETHER, () => {
  it('prints the token alone, and it opens a service that runs on the same store', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve();
    const { code, stdout } = await installation.run(['token', 'create', 'alice']);
    assert.equal(code, 0);
    assert.match(stdout, /^plt_[0-9A-Za-z]{49}\n$/);
    const response = await fetch(`${service.url}/plants`, { headers: bearer(stdout.trim()) });
    assert.equal(response.status, 200);
    assert.equal(await response.text(), '[]');
  });

  it('says at a terminal which token it is, in words', async (t) => {
    const installation = await newInstallation(t);
    await installation.run(['migrate']);
    const { stdout, stderr } = await installation.run(['token', 'create', 'alice'], { env: ON_A_TERMINAL });
    assert.match(stdout, /^plt_[0-9A-Za-z]{49}\n$/);
    const [{ id, expiresAt } = {}] = await listTokens(installation);
    assert.equal(stderr, `token ${id} of alice, which expires at ${expiresAt}; it is shown this once:\n`);
    const revoked = await installation.run(['token', 'revoke', String(id)], { env: ON_A_TERMINAL });
    assert.deepEqual([revoked.stdout, revoked.stderr], [`revoked ${id} of alice\n`, '']);
  });

  it('says by its whole path which store it made, and nothing of one that was there', async (t) => {
    const installation = await newInstallation(t);
    const args = ['token', 'create', 'alice', '--database-url', 'sqlite:data/plants.db'];
    const first = await installation.run(args);
    assert.match(
      first.stderr,
      new RegExp(`^made a new store at ${RegExp.escape(join(installation.folder, 'data', 'plants.db'))}\n`),
    );
    assert.equal(first.code, 0);
    assert.doesNotMatch((await installation.run(args)).stderr, /made/);
  });

  it('--scope makes it narrower, --expires and --name are kept', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({ env: { NODE_ENV: 'production' } });
    const before = Date.now();
    const flags = ['--scope', 'plants:read', '--expires', '12h', '--name', 'the greenhouse'];
    const headers = bearer(await installation.token('alice', ...flags));
    const body = '{"id":1,"name":"Alder"}';
    const create = { method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body };
    assert.equal((await fetch(`${service.url}/plants`, { headers })).status, 200);
    assert.equal((await fetch(`${service.url}/plants`, create)).status, 403);

    const [token] = await listTokens(installation);
    assert.deepEqual(token?.scopes, ['plants:read']);
    assert.equal(token?.name, 'the greenhouse');
    const life = Date.parse(String(token?.expiresAt)) - before;
    assert.ok(life >= 12 * 3_600_000 && life < 12 * 3_600_000 + 60_000, `expires after ${life} ms`);
  });

  it('has both scopes and 90 days unless told otherwise, and never expires with --expires never', async (t) => {
    const installation = await newInstallation(t);
    const before = Date.now();
    await installation.token('alice');
    await installation.token('bob', '--expires', 'never');
    const [first, second] = await listTokens(installation);
    assert.deepEqual([first?.owner, second?.owner], ['alice', 'bob']);
    assert.deepEqual(first?.scopes, ['plants:read', 'plants:write']);
    const life = Date.parse(String(first?.expiresAt)) - before;
    assert.ok(life >= 90 * 86_400_000 && life < 90 * 86_400_000 + 60_000, `expires after ${life} ms`);
    assert.equal(second?.expiresAt, null);
  });

  for (const { args, names } of [
    { args: [''], names: /OWNER/ },
    { args: ['two words'], names: /OWNER/ },
    { args: ['a'.repeat(129)], names: /OWNER/ },
    { args: ['alice', '--scope', 'plants:eat'], names: /--scope.*plants:read/ },
    { args: ['alice', '--scope', 'plants:read,plants:eat'], names: /--scope/ },
    { args: ['alice', '--scope', ''], names: /--scope/ },
    { args: ['alice', '--expires', 'tomorrow'], names: /--expires.*90d/ },
    { args: ['alice', '--expires', '0d'], names: /--expires/ },
    { args: ['alice', '--expires', '-1d'], names: /--expires/ },
    { args: ['alice', '--expires', '90'], names: /--expires/ },
    { args: ['alice', '--name', 'two\nlines'], names: /--name/ },
    { args: ['alice', '--name', '\u001b[31mred'], names: /--name/ },
    { args: ['alice', '--database-url', 'mysql://somewhere'], names: /--database-url/ },
  ]) {
    it(`refuses ${JSON.stringify(args).slice(0, 60)}, and creates nothing`, async (t) => {
      const installation = await newInstallation(t);
      refuses(await installation.run(['token', 'create', ...args]), names);
      assert.equal(existsSync(installation.file), false);
    });
  }
});

describe('token list', TOGETHER, () => {
  it('shows a table, without anything of a secret', async (t) => {
    const installation = await newInstallation(t);
    const secret = await installation.token('alice', '--name', 'the greenhouse', '--expires', 'never');
    const { code, stdout, stderr } = await installation.run(['token', 'list']);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
    const [head = '', row = '', ...rest] = stdout.split('\n');
    assert.match(head, /^ID +OWNER +STATE +SCOPES +EXPIRES +LAST USED +NAME$/);
    assert.match(row, /^\w+ +alice +valid +plants:read,plants:write +never +never +the greenhouse$/);
    assert.equal(head.indexOf('NAME'), row.indexOf('the greenhouse'));
    assert.deepEqual(rest, ['']);
    assert.ok(!stdout.includes(secret.slice(4, 12)));
  });

  it('--json gives an array, with the last use once the token was used', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({ env: { NODE_ENV: 'production' } });
    assert.deepEqual(await listTokens(installation), []);
    const secret = await installation.token('alice');
    const [unused, ...others] = await listTokens(installation);
    assert.deepEqual(others, []);
    assert.deepEqual(Object.keys(unused ?? {}).sort(), [
      ...['createdAt', 'expiresAt', 'id', 'lastUsedAt', 'name', 'owner', 'revokedAt', 'scopes', 'state'],
    ]);
    assert.equal(unused?.lastUsedAt, null);
    await fetch(`${service.url}/plants`, { headers: bearer(secret) });
    await service.stop();
    const [used] = await listTokens(installation);
    assert.ok(Math.abs(Date.now() - Date.parse(String(used?.lastUsedAt))) < 60_000, JSON.stringify(used));
    assert.ok(!JSON.stringify(used).includes(secret.slice(4, 12)));
  });
});

describe('token revoke', TOGETHER, () => {
  it('ends a token of a running service within a second, and leaves others alone', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({ env: { NODE_ENV: 'production' } });
    const secret = await installation.token('alice');
    const other = await installation.token('alice');
    const statusOf = async (token: string): Promise<number> => {
      const response = await fetch(`${service.url}/plants`, { headers: bearer(token) });
      await response.arrayBuffer();
      return response.status;
    };
    assert.equal(await statusOf(secret), 200);

    const [{ id } = {}] = await listTokens(installation);
    let revokedAt = Number.POSITIVE_INFINITY;
    const command = installation.run(['token', 'revoke', String(id)]).then((ended) => {
      revokedAt = performance.now();
      return ended;
    });
    // Asked all the time, so that the service always has the token at hand.
    for (let asked = performance.now(); (await statusOf(secret)) === 200; asked = performance.now())
      assert.ok(asked - revokedAt < 1_000, 'it still opens');
    const { code, stdout } = await command;
    assert.deepEqual({ code, stdout }, { code: 0, stdout: `revoked ${id} of alice\n` });
    assert.equal(await statusOf(secret), 401);
    assert.equal(await statusOf(other), 200);

    const states = (await listTokens(installation)).map(({ state }) => state);
    assert.deepEqual(states, ['revoked', 'valid']);
  });

  it('takes the token itself, and never shows it', async (t) => {
    const installation = await newInstallation(t);
    const secret = await installation.token('alice');
    const other = await installation.token('bob');
    const mistyped = `${other.slice(0, -1)}${other.endsWith('0') ? '1' : '0'}`;
    for (const named of [mistyped, other.slice(1), mintSecret()]) {
      const refused = await installation.run(['token', 'revoke', named]);
      refuses(refused, /^plant-store: there is no such token; .*token list/);
      assert.ok(!refused.stderr.includes(named.slice(4, -6)), refused.stderr);
    }
    const { code, stdout, stderr } = await installation.run(['token', 'revoke', secret]);
    const [{ id, state } = {}, second] = await listTokens(installation);
    assert.deepEqual({ code, stdout }, { code: 0, stdout: `revoked ${id} of alice\n` });
    assert.ok(!stderr.includes(secret.slice(4, -6)), stderr);
    assert.deepEqual([state, second?.state], ['revoked', 'valid']);
  });

  it('says of one that was revoked before when that was, and tells no second event', async (t) => {
    const installation = await newInstallation(t);
    const secret = await installation.token('alice');
    await installation.run(['token', 'revoke', secret]);
    const [{ id, revokedAt } = {}] = await listTokens(installation);
    const again = await installation.run(['token', 'revoke', String(id)]);
    assert.deepEqual(again, {
      code: 0,
      signal: null,
      stdout: `${id} of alice was already revoked at ${revokedAt}\n`,
      stderr: '',
    });
    assert.equal((await listTokens(installation))[0]?.revokedAt, revokedAt);
  });

  it('says of an id that is not there where those are that are', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('alice');
    refuses(await installation.run(['token', 'revoke', 'nosuchtoken1']), /nosuchtoken1.*token list/);
  });

  it('makes no store where there is none', async (t) => {
    const installation = await newInstallation(t);
    refuses(await installation.run(['token', 'revoke', 'nosuchtoken1']), /./);
    assert.equal(existsSync(installation.file), false);
  });
});

describe('migrate', TOGETHER, () => {
  it('says what it applied, and the second time that there is nothing to apply', async (t) => {
    const installation = await newInstallation(t);
    const first = await installation.run(['migrate']);
    assert.deepEqual(
      { code: first.code, stderr: first.stderr },
      { code: 0, stderr: `made a new store at ${installation.file}\n` },
    );
    assert.match(first.stdout, /^(?:applied \d{4}-[a-z-]+\.sql\n)+$/);
    const second = await installation.run(['migrate']);
    assert.deepEqual({ ...second }, { code: 0, signal: null, stdout: 'nothing to apply\n', stderr: '' });
  });
});

describe('openapi', TOGETHER, () => {
  it('prints the document that the service serves, under its base path', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({ flags: ['--base-path', '/v1'] });
    const { code, stdout, stderr } = await installation.run(['openapi', '--base-path', '/v1']);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
    const printed: { openapi: string; servers: unknown } = JSON.parse(stdout);
    assert.equal(printed.openapi, '3.1.0');
    assert.deepEqual(printed.servers, [{ url: '/v1' }]);
    assert.deepEqual(await (await fetch(`${service.url}/openapi.json`)).json(), printed);
  });

  it('needs no store', async (t) => {
    const installation = await newInstallation(t);
    const { code, stdout } = await installation.run(['openapi']);
    assert.equal(code, 0);
    const printed: { paths: object } = JSON.parse(stdout);
    assert.deepEqual(Object.keys(printed.paths), ['/plants', '/plants/{id}']);
    assert.equal(existsSync(installation.file), false);
  });
});

/** A setting, a value of its flag and one of its variable that keep the service from starting. */
const badSettings: readonly { flag: string; variable: string; values: readonly [string, string] }[] = [
  { flag: '--host', variable: 'HOST', values: ['', 'not a host'] },
  { flag: '--port', variable: 'PORT', values: ['65536', 'http'] },
  { flag: '--admin-host', variable: 'ADMIN_HOST', values: ['', 'not a host'] },
  { flag: '--admin-port', variable: 'ADMIN_PORT', values: ['-1', '80.5'] },
  { flag: '--database-url', variable: 'DATABASE_URL', values: ['mysql://somewhere', 'sqlite:'] },
  { flag: '--base-path', variable: 'BASE_PATH', values: ['v1', '/v1/'] },
  { flag: '--body-limit', variable: 'BODY_LIMIT', values: ['1023', '64k'] },
  { flag: '--log-level', variable: 'LOG_LEVEL', values: ['', 'loud'] },
];

describe('serve', TOGETHER, () => {
  for (const { flag, variable, values } of badSettings) {
    const [ofFlag, ofVariable] = values;

    it(`does not start with ${flag} ${JSON.stringify(ofFlag)}, and names it`, async (t) => {
      refuses(await failToServe(t, { [flag]: ofFlag }), new RegExp(`^plant-store: ${flag} .*must `));
    });

    it(`does not start with ${variable}=${JSON.stringify(ofVariable)}, and names it`, async (t) => {
      const ended = await failToServe(t, { [flag]: undefined }, { env: { [variable]: ofVariable } });
      refuses(ended, new RegExp(`^plant-store: ${variable} .*must `));
    });
  }

  it('takes settings from variables, and flags before them', async (t) => {
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

  for (const flag of ['--port', '--admin-port']) {
    it(`says when ${flag} is in use`, async (t) => {
      const port = await takePort(t);
      const ended = await failToServe(t, { [flag]: port });
      const variable = flag.slice(2).replace('-', '_').toUpperCase();
      const reason = `port ${port} of 127.0.0.1 is in use; choose another with ${flag} (${variable})`;
      refuses(ended, new RegExp(`^plant-store: ${RegExp.escape(reason)}\n$`));
    });
  }

  it('says in one go when both ports are in use', async (t) => {
    const [port, adminPort] = [await takePort(t), await takePort(t)];
    const ended = await failToServe(t, { '--port': port, '--admin-port': adminPort });
    refuses(
      ended,
      new RegExp(`^plant-store: port ${port} of .*--port \\(PORT\\); port ${adminPort} of .*\n$`),
    );
  });

  const unprivileged = withoutLowPorts();
  it('says when a port is not for this user', { skip: unprivileged === undefined }, async (t) => {
    const ended = await failToServe(t, { '--port': '1' }, unprivileged);
    const reason = 'port 1 of 127.0.0.1 is not for this user; choose one from 1024 on with --port (PORT)';
    refuses(ended, new RegExp(`^plant-store: ${RegExp.escape(reason)}\n$`));
  });

  it('says when the name of a host has no address', async (t) => {
    // A name that never has one (RFC 6761 §6.4).
    const ended = await failToServe(t, { '--admin-host': 'nosuch.invalid' });
    refuses(
      ended,
      /^plant-store: the host name nosuch\.invalid has no address; .*--admin-host \(ADMIN_HOST\)\n$/,
    );
  });

  it('says when it cannot listen on an address', async (t) => {
    // TEST-NET-3 (RFC 5737): an address that no machine has.
    refuses(
      await failToServe(t, { '--host': '203.0.113.1' }),
      /^plant-store: this machine has no address 203\.0\.113\.1; .*--host \(HOST\)\n$/,
    );
  });
});

describe('a store that cannot be opened', TOGETHER, () => {
  it('in a folder that cannot be written', async (t) => {
    // Where nobody may make a file, not even root.
    refuses(await failToServe(t, { '--database-url': 'sqlite:/proc/plants.db' }), /\/proc\/plants\.db/);
  });

  it('under a path that is a file', async (t) => {
    const { folder } = await newInstallation(t);
    await writeFile(join(folder, 'file'), '');
    const url = `sqlite:${join(folder, 'file', 'plants.db')}`;
    refuses(await failToServe(t, { '--database-url': url }), /file\/plants\.db/);
  });

  it('because it is a folder', async (t) => {
    const installation = await newInstallation(t);
    await mkdir(installation.file);
    refuses(
      await failToServe(t, { '--database-url': installation.databaseUrl }),
      /plants\.db is a folder; name a file in it\n$/,
    );
  });

  for (const command of [['serve'], ['migrate'], ['token', 'list'], ['token', 'create', 'alice']]) {
    it(`because it is no database; ${command.join(' ')} says so and leaves it as it is`, async (t) => {
      const installation = await newInstallation(t);
      const text = 'Dear diary, today I planted an alder.\n'.repeat(200);
      await writeFile(installation.file, text);
      refuses(await installation.run(command), /plants\.db.*not a database/);
      assert.equal(await readFile(installation.file, 'utf8'), text);
    });
  }

  it("because it is somebody else's database, which is left as it is", async (t) => {
    const installation = await newInstallation(t);
    using db = new DatabaseSync(installation.file);
    db.exec('CREATE TABLE diary (day TEXT)');
    refuses(await installation.run(['migrate']), /plants\.db/);
    const tables = db.prepare('SELECT name FROM sqlite_schema ORDER BY name').all();
    assert.deepEqual(
      tables.map(({ name }) => name),
      ['diary'],
    );
  });

  it('because a newer version made it, and says to run that', async (t) => {
    const installation = await newInstallation(t);
    await installation.run(['migrate']);
    using db = new DatabaseSync(installation.file);
    db.exec("INSERT INTO migrations (name) VALUES ('9999-from-the-future.sql')");
    refuses(await installation.run(['token', 'create', 'alice']), /newer version.*9999-from-the-future/);
  });
});

/** Asserts that a command failed as it should: with a message for people on stderr alone. */
function refuses({ code, signal, stdout, stderr }: Ended, message: RegExp): void {
  assert.equal(signal, null);
  assert.equal(code, 1);
  assert.equal(stdout, '');
  assert.match(stderr, message);
  assert.doesNotMatch(stderr, /^ +at /m, 'a stack trace is no message');
}

/** How to run a program that may not listen on port 1; undefined where that cannot be kept from it. */
function withoutLowPorts(): ProgramOptions | undefined {
  const firstForAll = '/proc/sys/net/ipv4/ip_unprivileged_port_start';
  if (!existsSync(firstForAll) || Number(readFileSync(firstForAll, 'utf8')) <= 1) return undefined;
  if (process.getuid?.() !== 0) return {};
  // All that root may do, but for this.
  const command = ['setpriv', '--bounding-set=-net_bind_service', '--inh-caps=-net_bind_service'] as const;
  const [name, ...flags] = command;
  if (spawnSync(name, [...flags, 'true'], { stdio: 'ignore' }).status !== 0) return undefined;
  return { wrap: (program) => [...command, ...program] };
}

/** Runs `serve` with flags that should keep it from serving; ports are any free ones unless said otherwise. */
async function failToServe(
  t: TestContext,
  flags: Readonly<Record<string, string | undefined>>,
  options?: ProgramOptions,
): Promise<Ended> {
  const installation = await newInstallation(t);
  const all = Object.entries({ '--port': '0', '--admin-port': '0', ...flags });
  const args = all.flatMap(([flag, value]) => (value === undefined ? [] : [flag, value]));
  const program = installation.start(['serve', ...args], options);
  // A service that serves nevertheless is stopped, to fail by what it wrote rather than by the clock.
  program
    .logged(({ msg }) => msg === 'serving')
    .then(
      () => program.kill('SIGTERM'),
      () => undefined,
    );
  return endOf(program);
}

async function takePort(t: TestContext): Promise<string> {
  const server = createServer();
  t.after(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return String(await listenOnFreePort(server));
}

type ListedToken = Readonly<Record<string, unknown>>;

async function listTokens(installation: Installation): Promise<readonly ListedToken[]> {
  const { code, stdout, stderr } = await installation.run(['token', 'list', '--json']);
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout);
}
