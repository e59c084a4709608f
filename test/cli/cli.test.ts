import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { existsSync } from 'node:fs';
import { describe, it } from 'node:test';
import { Command } from 'commander';
import { listCommands } from '../../build/fact-tables.ts';
import manifest from '../../package.json' with { type: 'json' };
import { addSettings } from '../../src/cli/settings/flags.ts';
import { assertFails, newInstallation, TOGETHER } from '../support/program.ts';
import { runCommand } from '../support/run-command.ts';
import { startService } from '../support/service.ts';

/** A command, its required arguments, and words that its help must have. docs.test.ts checks the flags. */
interface DocumentedCommand {
  readonly path: readonly string[];
  readonly shows?: readonly string[];
  readonly args: readonly string[];
}

const commands: readonly DocumentedCommand[] = [
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
  { path: ['token'], args: [] },
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
  { path: ['token', 'list'], args: [] },
  { path: ['token', 'revoke'], args: ['nosuchtoken1'] },
  {
    path: ['import'],
    args: ['alice', 'plants.csv'],
  },
  {
    path: ['export'],
    args: ['alice', 'plants.csv'],
  },
  { path: ['copy'], args: ['sqlite:a.db', 'sqlite:b.db'] },
  { path: ['backup'], args: ['backup.db'] },
  { path: ['check'], args: [] },
  { path: ['migrate'], args: [] },
  { path: ['openapi'], args: [] },
];

describe('every command', TOGETHER, () => {
  it('has a case, and is in the help of the program', async () => {
    const [program, ...others] = await listCommands();
    const names = others.map(({ name }) => name);
    assert.deepEqual(commands.map(({ path }) => path.join(' ')).toSorted(), ['', ...names].toSorted());
    const [{ shows = [] } = {}] = commands;
    assert.deepEqual(
      shows.filter((word) => !word.startsWith('-')),
      program?.subcommands,
    );
  });

  for (const { path, shows = [], args } of commands) {
    const name = ['plant-store', ...path].join(' ');

    if (shows.length > 0)
      it(`${name} --help → usage on stdout, exit code 0`, async (t) => {
        const installation = await newInstallation(t);
        const { code, stdout, stderr } = await installation.run([...path, '--help']);
        assert.equal(code, 0);
        assert.equal(stderr, '');
        for (const word of shows) assert.ok(stdout.includes(word), `${word} is not in the help:\n${stdout}`);
        assert.equal(existsSync(installation.file), false);
      });

    it(`${name}: unknown flag → rejected by name`, async (t) => {
      const installation = await newInstallation(t);
      assertFails(await installation.run([...path, ...args, '--frobnicate']), /--frobnicate/);
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
    it(`plant-store ${args.join(' ')} → rejected with the reason`, async (t) => {
      const installation = await newInstallation(t);
      const rejected = await installation.run(args);
      assertFails(rejected, names);
      assert.match(rejected.stderr, /^plant-store: .*\n(?:.*\n)*\(run with --help/);
      assert.equal(existsSync(installation.file), false);
    });
  }
});

it('plant-store --version → version of the package', async (t) => {
  const installation = await newInstallation(t);
  const { code, stdout, stderr } = await installation.run(['--version']);
  assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: `${manifest.version}\n`, stderr: '' });
});

it('npm start --port 9000: npm takes the flag, and passes on its value → the message says so', async (t) => {
  const { run } = await newInstallation(t);
  const env = { npm_lifecycle_event: 'start', npm_config_port: 'true' };
  const { code, stderr } = await run(['serve', '9000'], { env });
  assert.equal(code, 1);
  assert.match(stderr, /^plant-store: too many arguments/);
  assert.match(stderr, /\nplant-store: --port went to npm and has no effect; put flags after --/);
});

describe('migrate', TOGETHER, () => {
  it('first run → lists applied migrations; second run → nothing to apply', async (t) => {
    const installation = await newInstallation(t);
    const first = await installation.run(['migrate']);
    assert.deepEqual(
      { code: first.code, stderr: first.stderr },
      { code: 0, stderr: `created a new store at ${installation.file}\n` },
    );
    assert.match(first.stdout, /^(?:applied \d{4}-[a-z-]+\.sql\n)+$/);
    const second = await installation.run(['migrate']);
    assert.deepEqual({ ...second }, { code: 0, signal: null, stdout: 'nothing to apply\n', stderr: '' });
  });
});

describe('openapi', TOGETHER, () => {
  it('prints the same document as the service, with the base path', async (t) => {
    const installation = await newInstallation(t);
    const service = await startService(t, installation.databaseUrl, { basePath: '/v1' });
    const { code, stdout, stderr } = await installation.run(['openapi', '--base-path', '/v1']);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
    const printed: { openapi: string; servers: unknown } = JSON.parse(stdout);
    assert.equal(printed.openapi, '3.1.0');
    assert.deepEqual(printed.servers, [{ url: '/v1' }]);
    assert.deepEqual(await (await fetch(`${service.url}/openapi.json`)).json(), printed);
  });

  for (const [given, printed] of [
    ['https://plants.example', 'https://plants.example'],
    ['http://plants.example:8080/', 'http://plants.example:8080'],
    ['https://example.org/v1', 'https://example.org/v1'],
  ] as const) {
    it(`--server ${given} → the server is ${printed}`, async (t) => {
      const installation = await newInstallation(t);
      const { code, stdout, stderr } = await installation.run(['openapi', '--server', given], {
        env: { BASE_PATH: '/other' },
      });
      assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
      const { servers }: { servers: unknown } = JSON.parse(stdout);
      assert.deepEqual(servers, [{ url: printed }]);
    });
  }

  for (const given of [
    '',
    '/v1',
    'plants.example',
    'ftp://plants.example',
    'https://u:p@plants.example',
    'https://a.example?b',
  ]) {
    it(`--server '${given}' → rejected, with an example`, async (t) => {
      const installation = await newInstallation(t);
      const ended = await installation.run(['openapi', '--server', given]);
      assertFails(ended, /--server <url>.*URL such as https:\/\/plants\.example/s);
    });
  }

  it('works without a store', async (t) => {
    const installation = await newInstallation(t);
    const { code, stdout } = await installation.run(['openapi']);
    assert.equal(code, 0);
    const printed: { paths: object } = JSON.parse(stdout);
    assert.deepEqual(Object.keys(printed.paths), ['/plants', '/plants/{id}']);
    assert.equal(existsSync(installation.file), false);
  });
});

it('repeated flag → a list is joined, unless it is empty, and of others the last one counts', () => {
  const reset = ['--cors-origin', '*', '--cors-origin', '', '--trust-proxy', '::2', '--trust-proxy', ''];
  const lists = [
    '--cors-origin',
    'https://a.test',
    '--trust-proxy',
    '::1',
    '--cors-origin',
    'https://b.test',
  ];
  const command = addSettings(new Command()).parse([...reset, ...lists, '--port', '1', '--port', '2'], {
    from: 'user',
  });
  assert.deepEqual(command.opts(), {
    corsOrigin: 'https://a.test,https://b.test',
    trustProxy: '::1',
    port: '2',
  });
});

it('signal after a failed start of serve → exit code 1', async (t) => {
  const { run } = await newInstallation(t);
  const signals = new EventEmitter();
  const ends: unknown[] = [];
  const args = ['serve', '--database-url', 'sqlite:/dev/null/plants.db', '--log-level', 'silent'];
  const { code } = await run(args, { signals, onEnd: (how) => ends.push(how) });
  assert.equal(code, 1);
  signals.emit('SIGTERM');
  assert.deepEqual(ends, [1]);
});

for (const [npm_lifecycle_event, isWatched] of [
  ['start', true],
  ['', false],
] as const)
  it(`serve, npm_lifecycle_event is "${npm_lifecycle_event}" → ${isWatched ? 'watches' : 'ignores'} its parent`, async () => {
    let isAsked = false;
    const parentPid = (): number => {
      isAsked = true;
      return process.ppid;
    };
    const args = ['serve', '--database-url', 'sqlite:/dev/null/plants.db', '--log-level', 'silent'];
    await runCommand(args, '/', { env: { npm_lifecycle_event }, parentPid });
    assert.equal(isAsked, isWatched);
  });
