import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join, normalize } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { renderHaproxyConfig, startHaproxy, stop } from '../deploy/try-haproxy.ts';
import { errorCodes, statusOf } from '../src/api-errors.ts';
import { SHUTDOWN_MS } from '../src/cli/commands/serve-command.ts';
import { loadConfig, settings, variableOf } from '../src/config.ts';
import { mintSecret } from '../src/token.ts';
import { freshFolder } from './support/engines.ts';
import { needsProgram } from './support/needs.ts';
import { freePort } from './support/servers/free-port.ts';
import { startService } from './support/service.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

type Yaml = string | Yaml[] | { [key: string]: Yaml };

/** Parses the subset of YAML in the compose file: block maps and lists, flow lists as JSON, anchors, merges. */
function parseYaml(text: string): Yaml {
  const lines = text.split('\n').filter((line) => !/^\s*(?:#.*)?$/.test(line));
  const anchors = new Map<string, Yaml>();

  const depthOf = (line = ''): number => line.length - line.trimStart().length;

  function scalar(source: string): Yaml {
    if (source.startsWith('*')) {
      const target = anchors.get(source.slice(1));
      assert.ok(target !== undefined, `${source} has no anchor`);
      return target;
    }
    if (/^["[]/.test(source)) return JSON.parse(source);
    assert.doesNotMatch(source, /^[{'|>!&]|\s#|: /, `beyond this parser: ${source}`);
    return source;
  }

  function list(depth: number): Yaml[] {
    const items: Yaml[] = [];
    while (depthOf(lines[0]) === depth && lines[0]?.trimStart().startsWith('- '))
      items.push(scalar(lines.shift()?.trimStart().slice(2) ?? ''));
    return items;
  }

  function block(depth: number): Yaml {
    if (lines[0]?.trimStart().startsWith('- ')) return list(depth);
    const map: { [key: string]: Yaml } = {};
    while (lines[0] !== undefined && depthOf(lines[0]) === depth) {
      const match = /^\s*([^\s:]+):(?: &(\S+))?(?: (.+))?$/.exec(lines.shift() ?? '');
      assert.ok(match !== null, 'a line of the YAML is not `key: value`');
      const [, key = '', anchor, source] = match;
      const isNested = source === undefined && depthOf(lines[0]) > depth;
      const value = source !== undefined ? scalar(source) : isNested ? block(depthOf(lines[0])) : '';
      if (anchor !== undefined) anchors.set(anchor, value);
      if (key === '<<') Object.assign(map, { ...mapOf(value), ...map });
      else {
        assert.ok(!(key in map), `duplicate key ${key}`);
        map[key] = value;
      }
    }
    return map;
  }

  const document = block(0);
  assert.deepEqual(lines, [], 'these lines of the YAML are not where they should be');
  return document;
}

function mapOf(value: Yaml | undefined): { [key: string]: Yaml } {
  assert.ok(typeof value === 'object' && !Array.isArray(value), 'not a map');
  return value;
}

function listOf(value: Yaml | undefined): Yaml[] {
  assert.ok(Array.isArray(value), 'not a list');
  return value;
}

function textOf(value: Yaml | undefined): string {
  assert.ok(typeof value === 'string', 'not a string');
  return value;
}

/** The variables that the service reads: its settings and NODE_ENV. */
const variables = new Set([...settings.map(variableOf), 'NODE_ENV']);

function assertVariables(environment: Readonly<Record<string, string>>): void {
  for (const name of Object.keys(environment)) assert.ok(variables.has(name), `unknown setting ${name}`);
}

describe('compose.yaml', () => {
  const compose = mapOf(parseYaml(read('deploy/compose.yaml')));
  const services = mapOf(compose.services);
  const instances = Object.keys(services).filter((name) => name.startsWith('plant-store-'));
  const withPassword = (text: string): string => text.replace(/\$\{POSTGRES_PASSWORD:\?[^}]*\}/g, 'secret');
  const environmentOf = (name: string): Record<string, string> =>
    Object.fromEntries(
      Object.entries(mapOf(mapOf(services[name]).environment)).map(([key, value]) => [
        key,
        withPassword(textOf(value)),
      ]),
    );

  test('contains PostgreSQL 18, three instances and HAProxy only', () => {
    assert.deepEqual(Object.keys(services).sort(), ['haproxy', ...instances.sort(), 'postgres']);
    assert.equal(instances.length, 3);
    assert.match(textOf(mapOf(services.postgres).image), /^postgres:18\.[0-9]+$/);
  });

  test('pins every image to a version', () => {
    for (const [name, service] of Object.entries(services))
      assert.match(textOf(mapOf(service).image), /^[a-z/-]+:[0-9]+\.[0-9]+(?:\.[0-9]+)?$/, name);
    assert.equal(mapOf(services['plant-store-1']).image, `plant-store:${packageOf().version}`);
  });

  test('environment of every instance → valid settings, database of this file', () => {
    const postgres = environmentOf('postgres');
    for (const name of instances) {
      const environment = environmentOf(name);
      assertVariables(environment);
      const config = loadConfig({}, environment);
      const url = new URL(config.databaseUrl);
      assert.deepEqual(
        [url.protocol, url.hostname, url.port, url.username, url.password, url.pathname],
        [
          'postgres:',
          'postgres',
          '5432',
          postgres.POSTGRES_USER,
          postgres.POSTGRES_PASSWORD,
          `/${postgres.POSTGRES_DB}`,
        ],
      );
      assert.deepEqual([config.host, config.adminHost], ['0.0.0.0', '0.0.0.0'], name);
    }
  });

  test('publishes only the port of HAProxy, on loopback only', () => {
    for (const [name, service] of Object.entries(services)) {
      const { ports } = mapOf(service);
      if (name !== 'haproxy') assert.equal(ports, undefined, name);
    }
    const bound = /^\s*bind :([0-9]+)$/m.exec(read('deploy/haproxy.cfg'))?.[1];
    assert.deepEqual(mapOf(services.haproxy).ports, [`127.0.0.1:${bound}:${bound}`]);
  });

  test('files, services and volumes exist', () => {
    for (const [name, service] of Object.entries(services)) {
      const { build, depends_on, volumes } = mapOf(service);
      if (build !== undefined) {
        const { context, dockerfile } = mapOf(build);
        const file = join('deploy', textOf(context), textOf(dockerfile));
        assert.ok(statSync(join(root, file)).isFile(), `${name}: ${file}`);
      }
      if (depends_on !== undefined)
        for (const other of Object.keys(mapOf(depends_on))) assert.ok(other in services, `${name}: ${other}`);
      for (const volume of volumes === undefined ? [] : listOf(volumes)) {
        const [source = ''] = textOf(volume).split(':');
        if (source.startsWith('.')) assert.ok(statSync(join(root, 'deploy', source)).isFile(), source);
        else assert.ok(source in mapOf(compose.volumes), `${name}: volume ${source}`);
      }
    }
  });

  test('depends only on services with a health check', () => {
    const dockerfile = read('deploy/Dockerfile');
    for (const service of Object.values(services))
      for (const [name, how] of Object.entries(mapOf(mapOf(service).depends_on ?? {}))) {
        assert.equal(mapOf(how).condition, 'service_healthy');
        const other = mapOf(services[name]);
        assert.ok('healthcheck' in other || ('build' in other && /^HEALTHCHECK /m.test(dockerfile)), name);
      }
  });

  test('stop_grace_period exceeds the shutdown limit of the service', () => {
    const seconds = (time: string): number => Number(/^([0-9]+)s$/.exec(time)?.[1]);
    for (const name of instances)
      assert.ok(seconds(textOf(mapOf(services[name]).stop_grace_period)) * 1_000 > SHUTDOWN_MS, name);
  });
});

describe('haproxy.cfg', () => {
  const config = read('deploy/haproxy.cfg');
  const services = mapOf(mapOf(parseYaml(read('deploy/compose.yaml'))).services);

  test('lists the instances of the compose file, with their ports', () => {
    const { port, adminPort } = loadConfig({}, {});
    const servers = [...config.matchAll(/^\s*server (\S+) (\S+)$/gm)].map(([, name, address]) => [
      name,
      address,
    ]);
    const instances = Object.keys(services).filter((name) => name.startsWith('plant-store-'));
    assert.deepEqual(
      servers,
      instances.map((name) => [name, `${name}:${port}`]),
    );
    assert.match(config, new RegExp(`^\\s*default-server check port ${adminPort} `, 'm'));
  });

  test('health check → matches the response of a healthy admin listener', async (t) => {
    const [, method, path = ''] = /http-check send meth (\S+) uri (\S+)/.exec(config) ?? [];
    const status = /http-check expect status ([0-9]+)/.exec(config)?.[1];
    const service = await startService(t, `sqlite:${join(await freshFolder(), 'plants.db')}`);
    const answer = await fetch(service.adminUrl + path, { method: method ?? '' });
    await answer.body?.cancel();
    assert.equal(String(answer.status), status);
  });

  test('error responses of HAProxy → error codes of the service, with their status', () => {
    const turned = /set-status ([0-9]+) if \{ status ([0-9 ]+) \}/.exec(config);
    const answers = [
      ...config.matchAll(/^\s*http-error status ([0-9]+) content-type (\S+) string '([^']*)'/gm),
    ];
    assert.ok(answers.length >= 6);
    for (const [, status = '', contentType, body = ''] of answers) {
      const { error, message, ...rest } = JSON.parse(body);
      const code = errorCodes.find((known) => known === error);
      assert.ok(code !== undefined, `${error} is not an error code of the service`);
      const leaves = turned?.[2]?.split(' ').includes(status) ? turned[1] : status;
      assert.equal(leaves, String(statusOf(code)));
      assert.equal(contentType, 'application/json');
      assert.equal(typeof message, 'string');
      assert.deepEqual(rest, {});
    }
  });

  test('retries a sent request only if it is safe to repeat', () => {
    const conditions = config.match(/^\s*(?:acl|http-request disable-l7-retry|retry-on) .*$/gm);
    assert.deepEqual(
      conditions?.map((line) => line.trim()),
      [
        'retry-on conn-failure empty-response',
        'acl reads method GET HEAD',
        'acl creates method POST',
        'acl keyed req.hdr(Idempotency-Key) -m found',
        'http-request disable-l7-retry unless reads or creates keyed',
      ],
    );
  });

  test('sets X-Forwarded-For to the address of the client', () => {
    assert.match(config, /^\s*http-request set-header X-Forwarded-For %\[src\]$/m);
  });

  const haproxy = needsProgram('haproxy');
  test('X-Forwarded-For from a client → replaced by its address', haproxy, async (t) => {
    const service = await startService(t, `sqlite:${join(await freshFolder(), 'plants.db')}`, {
      trustProxy: '127.0.0.0/8',
      refusedTokenLimit: '1',
    });
    const port = await freePort();
    const address = {
      port: Number(new URL(service.url).port),
      adminPort: Number(new URL(service.adminUrl).port),
    };
    const proxy = await startHaproxy(await freshFolder(), port, [address, address, address]);
    t.after(() => stop(proxy));
    const statusFor = async (forwarded: string): Promise<number> => {
      const headers = { authorization: `Bearer ${mintSecret()}`, 'x-forwarded-for': forwarded };
      const answer = await fetch(`http://127.0.0.1:${port}/plants`, { headers });
      await answer.body?.cancel();
      return answer.status;
    };
    assert.deepEqual([await statusFor('192.0.2.1'), await statusFor('192.0.2.2')], [401, 429]);
  });

  const renderWithOtherAddresses = (): Promise<string> =>
    renderHaproxyConfig(1, [
      { port: 2, adminPort: 3 },
      { port: 4, adminPort: 5 },
      { port: 6, adminPort: 7 },
    ]);

  test('all sections are there, also with other addresses', async () => {
    const other = await renderWithOtherAddresses();
    assert.match(other, /server plant-store-3 127\.0\.0\.1:6 port 7$/m);
    for (const text of [config, other]) assertSections(text);
  });

  test('HAProxy accepts it, unchanged and with other addresses', haproxy, async () => {
    // Skips DNS: the names do not exist here, and lookups may take a minute.
    const unresolved = config.replace('init-addr libc,none', 'init-addr none');
    assert.notEqual(unresolved, config);
    for (const text of [unresolved, await renderWithOtherAddresses()]) {
      const file = join(await freshFolder(), 'haproxy.cfg');
      await writeFile(file, text);
      await run('haproxy', ['-c', '-q', '-f', file]);
    }
  });

  function assertSections(text: string): void {
    const headers = text.match(/^[a-z].*$/gm);
    assert.deepEqual(headers, [
      'global',
      'defaults',
      'resolvers system',
      'frontend api',
      'backend instances',
    ]);
    assert.equal(/^\s*default_backend (\S+)$/m.exec(text)?.[1], 'instances');
  }
});

describe('Dockerfile', () => {
  const dockerfile = read('deploy/Dockerfile');
  // Joins continued lines.
  const instructions = dockerfile
    .replaceAll(/^#.*\n/gm, '')
    .replaceAll(/\\\n\s*/g, '')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => ({ name: line.split(' ', 1)[0] ?? '', value: line.slice(line.indexOf(' ') + 1) }));
  const valuesOf = (name: string): string[] =>
    instructions.filter((instruction) => instruction.name === name).map(({ value }) => value);
  const stringsIn = (json: string | undefined): string[] =>
    listOf(JSON.parse(json ?? '')).map((item) => textOf(item));
  const environment = Object.fromEntries(
    valuesOf('ENV').flatMap((line) => line.split(' ').map((pair) => pair.split(/=(.*)/s, 2))),
  );

  test('base image → the Node version of the tests, slim', () => {
    const { node } = packageOf().devDependencies;
    for (const image of valuesOf('FROM')) assert.equal(image.split(' ')[0], `node:${node}-slim`);
    assert.equal(valuesOf('FROM').length, 2);
  });

  test('copies only files that exist and that .dockerignore includes', () => {
    const passed = read('.dockerignore')
      .split('\n')
      .filter((line) => line.startsWith('!'))
      .map((line) => line.slice(1));
    const sources = valuesOf('COPY')
      .filter((line) => !line.startsWith('--from='))
      .flatMap((line) => line.split(' ').slice(0, -1));
    assert.deepEqual([...new Set(sources)].sort(), passed.toSorted());
    for (const source of sources) assert.ok(statSync(join(root, source)), source);
  });

  test('entry point → existing command, without a shell', async () => {
    const [program = '', ...flags] = stringsIn(valuesOf('ENTRYPOINT')[0]);
    const command = stringsIn(valuesOf('CMD')[0]);
    assert.equal(program, 'node');
    const { stdout } = await run(process.execPath, [...flags, ...command, '--help'], { cwd: root });
    assert.match(stdout, /Usage: plant-store serve/);
  });

  test('variables → valid settings', () => {
    assertVariables(environment);
    const { host, adminHost, databaseUrl } = loadConfig({}, environment);
    assert.deepEqual([host, adminHost, environment.NODE_ENV], ['0.0.0.0', '127.0.0.1', 'production']);
    assert.ok(databaseUrl.startsWith(`sqlite:${valuesOf('VOLUME')[0]}/`));
  });

  test('does not run as root', () => {
    const [account = ''] = valuesOf('USER');
    assert.match(account, /^[1-9][0-9]*:[1-9][0-9]*$/);
  });

  test('health check → succeeds for a running service, fails otherwise', async (t) => {
    const check = /^(?:--\S+ )*CMD (.*)$/.exec(valuesOf('HEALTHCHECK')[0] ?? '')?.[1];
    const [program, ...flags] = stringsIn(check);
    assert.equal(program, 'node');
    const service = await startService(t, `sqlite:${join(await freshFolder(), 'plants.db')}`);
    const env = { ...process.env, ADMIN_PORT: new URL(service.adminUrl).port };
    await run(process.execPath, flags, { env });
    await service.close();
    await assert.rejects(run(process.execPath, flags, { env }), { code: 1 });
  });

  test('package-lock.json names every package for every platform, as `npm ci` requires', () => {
    const { packages }: { packages: Record<string, Partial<Package>> } = JSON.parse(
      read('package-lock.json'),
    );
    const names = new Set(Object.keys(packages).map((path) => path.replace(/^.*node_modules\//, '')));
    for (const [path, { dependencies, optionalDependencies }] of Object.entries(packages))
      for (const name of Object.keys({ ...dependencies, ...optionalDependencies }))
        assert.ok(names.has(name), `${path} wants ${name}`);
  });

  test('contains all packages that the service imports, without development packages', () => {
    const { dependencies } = packageOf();
    for (const file of readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })) {
      if (!file.endsWith('.ts')) continue;
      const imports = read(join('src', file)).matchAll(/^(?:import|export) (?!type ).*?from '([^']+)';$/gms);
      for (const [, specifier = ''] of imports) {
        if (/^(?:\.|node:)/.test(specifier)) continue;
        const name = specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
        assert.ok(name in dependencies, `src/${file} imports ${name}`);
      }
    }
  });
});

describe('plant-store.service', () => {
  const unit = read('deploy/plant-store.service');
  const valuesOf = (key: string): string[] =>
    [...unit.matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].map(([, value = '']) => value);

  test('starts a command that exists', async () => {
    const [start = ''] = valuesOf('ExecStart');
    const match = /^\/usr\/bin\/node \/opt\/plant-store\/(\S+) (\S+)$/.exec(start);
    assert.ok(match !== null, start);
    const [, file = '', command = ''] = match;
    const { stdout } = await run(process.execPath, [join(root, normalize(file)), command, '--help']);
    assert.match(stdout, /Usage: plant-store serve/);
  });

  test('variables → valid settings; the store is in a writable folder', () => {
    const { NODE_COMPILE_CACHE: cache, ...environment } = Object.fromEntries(
      valuesOf('Environment').map((pair) => pair.split(/=(.*)/s, 2)),
    );
    assertVariables(environment);
    assert.equal(cache, `/var/cache/${valuesOf('CacheDirectory')[0]}`);
    const { databaseUrl } = loadConfig({}, environment);
    assert.ok(databaseUrl.startsWith(`sqlite:/var/lib/${valuesOf('StateDirectory')[0]}/`), databaseUrl);
    assert.equal(environment.NODE_ENV, 'production');
  });

  test('removes privileges that the service does not need', () => {
    const expected = {
      DynamicUser: 'yes',
      NoNewPrivileges: 'yes',
      ProtectSystem: 'strict',
      ProtectHome: 'yes',
      PrivateTmp: 'yes',
      CapabilityBoundingSet: '',
    };
    for (const [key, value] of Object.entries(expected)) assert.deepEqual(valuesOf(key), [value], key);
    assert.deepEqual(valuesOf('MemoryDenyWriteExecute'), [], 'V8 could not start');
  });

  test('restarts on failure; TimeoutStopSec exceeds the shutdown limit', () => {
    assert.deepEqual(valuesOf('Restart'), ['on-failure']);
    assert.deepEqual(valuesOf('KillSignal'), ['SIGTERM']);
    assert.ok(Number(valuesOf('TimeoutStopSec')[0]) * 1_000 > SHUTDOWN_MS);
  });

  test('restarts without a limit while the store is down', () => {
    assert.match(unit, /^\[Unit\]\n(?:[^[].*\n)*StartLimitIntervalSec=0$/m);
  });

  test('has sections of settings only', () => {
    const lines = unit.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    for (const line of lines) assert.match(line, /^(?:\[[A-Z][a-z]+\]|[A-Z][A-Za-z]+=.*)$/);
    assert.deepEqual(
      lines.filter((line) => line.startsWith('[')),
      ['[Unit]', '[Service]', '[Install]'],
    );
  });

  test('systemd accepts it', needsProgram('systemd-analyze'), async () => {
    const file = join(await freshFolder(), 'plant-store.service');
    // systemd-analyze checks that the program exists, so the path is replaced.
    await writeFile(file, unit.replace('/usr/bin/node /opt/plant-store', `${process.execPath} ${root}`));
    const { stderr } = await run('systemd-analyze', ['verify', '--man=no', file]);
    assert.equal(stderr, '');
  });
});

interface Package {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
}

function packageOf(): Package {
  return JSON.parse(read('package.json'));
}
