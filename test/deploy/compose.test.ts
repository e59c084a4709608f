import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import manifest from '../../package.json' with { type: 'json' };
import { FORCED_EXIT_MS } from '../../src/cli/commands/serve-command.ts';
import { loadConfig } from '../../src/config.ts';
import { isPlainByDefault } from '../../src/database-url.ts';
import { migrateStore } from '../../src/store/open-engine.ts';
import {
  assertVariables,
  listOf,
  mapOf,
  ROOT,
  read,
  readYaml,
  run,
  textOf,
  type Yaml,
} from '../support/deploy-files.ts';
import { freshFolder } from '../support/engines.ts';
import { needsProgram } from '../support/needs.ts';
import { startPostgres } from '../support/servers/postgres-server.ts';
import { bearer, startService } from '../support/service.ts';

const [compose = {}] = readYaml('deploy/compose.yaml');
const services = mapOf(compose.services);
const instances = Object.keys(services).filter((name) => name.startsWith('plant-store-'));
const programs = ['migrate', ...instances];

const NEEDS_OPENSSL = needsProgram('openssl');

const partOf = (service: string, key: string): Yaml | undefined => mapOf(services[service])[key];
const stringsOf = (value: Yaml | undefined): readonly string[] =>
  value === undefined ? [] : listOf(value).map((item) => textOf(item));
const environmentOf = (service: string): Record<string, string> =>
  Object.fromEntries(
    Object.entries(mapOf(partOf(service, 'environment'))).map(([key, value]) => [key, String(value)]),
  );

/** Runs the commands of the file's head that create the secrets. Returns the folder of the secrets. */
async function createSecrets(): Promise<string> {
  const folder = await freshFolder();
  await mkdir(join(folder, 'deploy'));
  const commands = [...read('deploy/compose.yaml').matchAll(/^# {5}((?:mkdir|openssl|echo) .*)$/gm)];
  assert.equal(commands.length, 4);
  await run('sh', ['-euc', commands.map(([, command]) => command).join('\n')], { cwd: folder });
  return join(folder, 'deploy/secrets');
}

/** Resolves what psql would execute of deploy/postgres-accounts.sql, with the secrets of another folder. */
async function accountsSql(secrets: string): Promise<string> {
  let sql = read('deploy/postgres-accounts.sql')
    .replaceAll('/run/secrets', '.')
    .replace('\\set ON_ERROR_STOP on\n', '');
  for (const [line, name, command = ''] of sql.matchAll(/^\\set (\w+) `(.*)`$/gm)) {
    const { stdout } = await run('sh', ['-euc', command], { cwd: secrets });
    sql = sql.replace(line, '').replaceAll(`:'${name}'`, `'${stdout.trimEnd()}'`);
  }
  return sql;
}

describe('compose.yaml', () => {
  test('contains PostgreSQL 18, a migration, three instances and HAProxy only', () => {
    assert.deepEqual(Object.keys(services).sort(), ['haproxy', ...programs, 'postgres'].sort());
    assert.equal(instances.length, 3);
    assert.match(textOf(partOf('postgres', 'image')), /^postgres:18\.[0-9]+@sha256:[0-9a-f]{64}$/);
  });

  test('pins every image to a version', () => {
    for (const name of Object.keys(services))
      assert.match(
        textOf(partOf(name, 'image')),
        /^[a-z/-]+:[0-9]+\.[0-9]+(?:\.[0-9]+)?(?:@sha256:[0-9a-f]{64})?$/,
        name,
      );
    for (const name of programs) assert.equal(partOf(name, 'image'), `plant-store:${manifest.version}`, name);
  });

  test('no container can change its file system, or has a capability', () => {
    for (const name of Object.keys(services)) {
      assert.equal(partOf(name, 'read_only'), true, name);
      assert.deepEqual(partOf(name, 'cap_drop'), ['ALL'], name);
      assert.deepEqual(partOf(name, 'security_opt'), ['no-new-privileges:true'], name);
      for (const key of ['privileged', 'cap_add', 'network_mode', 'pid'])
        assert.equal(partOf(name, key), undefined, `${name}: ${key}`);
    }
    assert.match(textOf(partOf('postgres', 'user')), /^[1-9][0-9]*:[1-9][0-9]*$/);
  });

  test('only HAProxy is in the network with a way out, and only the programs reach the database', () => {
    const members = (network: string): readonly string[] =>
      Object.keys(services).filter((name) => stringsOf(partOf(name, 'networks')).includes(network));
    assert.deepEqual(members('public'), ['haproxy']);
    assert.deepEqual(members('instances').toSorted(), ['haproxy', ...instances].toSorted());
    assert.deepEqual(members('database').toSorted(), ['postgres', ...programs].toSorted());
    const networks = mapOf(compose.networks);
    assert.deepEqual(Object.keys(networks).sort(), ['database', 'instances', 'public']);
    for (const name of ['instances', 'database']) assert.equal(mapOf(networks[name]).internal, true, name);
  });

  test('publishes only the port of HAProxy, on loopback only', () => {
    for (const name of Object.keys(services))
      if (name !== 'haproxy') assert.equal(partOf(name, 'ports'), undefined, name);
    const bound = /^\s*bind :([0-9]+)$/m.exec(read('deploy/haproxy.cfg'))?.[1];
    assert.deepEqual(partOf('haproxy', 'ports'), [`127.0.0.1:${bound}:${bound}`]);
  });

  test('secrets come from files, and each container has only its own', () => {
    const declared = Object.entries(mapOf(compose.secrets));
    for (const [name, secret] of declared) assert.deepEqual(secret, { file: `./secrets/${name}` });
    for (const name of instances) assert.deepEqual(stringsOf(partOf(name, 'secrets')), ['database-url']);
    assert.deepEqual(stringsOf(partOf('migrate', 'secrets')), ['migration-url']);
    assert.deepEqual(partOf('haproxy', 'secrets'), undefined);
    assert.deepEqual(
      stringsOf(partOf('postgres', 'secrets')).toSorted(),
      declared.map(([name]) => name).toSorted(),
    );
    for (const name of ['postgres', ...programs])
      for (const [variable, value] of Object.entries(environmentOf(name))) {
        assert.doesNotMatch(value, /:\/\//, `${name}: ${variable}`);
        if (!/PASSWORD|URL/.test(variable)) continue;
        const file = /^\/run\/secrets\/(.*)$/.exec(value)?.[1];
        assert.ok(file !== undefined && stringsOf(partOf(name, 'secrets')).includes(file), value);
      }
  });

  test('environment of every instance → valid settings, database of this file', NEEDS_OPENSSL, async () => {
    const secrets = await createSecrets();
    assert.equal(statSync(secrets).mode & 0o777, 0o700);
    for (const name of instances) {
      const environment = environmentOf(name);
      assertVariables(environment);
      const file = environment.DATABASE_URL_FILE?.replace('/run/secrets', secrets);
      const config = loadConfig({}, { ...environment, DATABASE_URL_FILE: file });
      const { protocol, host, username, password, pathname } = new URL(config.databaseUrl);
      assert.deepEqual(
        [protocol, host, username, pathname],
        ['postgres:', 'postgres:5432', 'plants_app', `/${environmentOf('postgres').POSTGRES_DB}`],
      );
      assert.match(password, /^[0-9a-f]{48}$/);
      assert.equal(isPlainByDefault(config.databaseUrl, {}), false);
      assert.deepEqual([config.host, config.adminHost], ['0.0.0.0', '0.0.0.0'], name);
    }
  });

  test('accounts on PostgreSQL → one migrates, the other may change no table', NEEDS_OPENSSL, async (t) => {
    const server = await startPostgres(['fsync = off']);
    t.after(() => server.remove());
    const rules = 'host all postgres all trust\nhost all all all scram-sha-256\n';
    await writeFile(join(server.folder, 'pg_hba.conf'), rules);
    await server.sql('SELECT pg_reload_conf()');
    const secrets = await createSecrets();
    await server.sql('CREATE DATABASE plant_store');
    await server.sql(await accountsSql(secrets), 'plant_store');
    const urlIn = (secret: string): string =>
      loadConfig({}, { DATABASE_URL_FILE: join(secrets, secret) }).databaseUrl.replace(
        'postgres:5432',
        `127.0.0.1:${server.port}`,
      );

    await migrateStore(urlIn('migration-url'));
    const service = await startService(t, urlIn('database-url'));
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
    const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
    const created = await fetch(`${service.url}/plants`, {
      method: 'POST',
      headers: { ...headers, 'idempotency-key': 'one' },
      body: '{"id":1,"name":"Alder"}',
    });
    assert.equal(created.status, 200);

    const roles = await server.sql(
      "SELECT rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls FROM pg_roles WHERE rolname LIKE 'plants%' ORDER BY rolname",
    );
    const least = {
      rolsuper: false,
      rolcreaterole: false,
      rolcreatedb: false,
      rolreplication: false,
      rolbypassrls: false,
    };
    assert.deepEqual(
      roles.map((role) => ({ ...role })),
      [
        { rolname: 'plants_app', ...least },
        { rolname: 'plants_owner', ...least },
      ],
    );
    for (const statement of [
      'CREATE TABLE other (id int)',
      'ALTER TABLE plants ADD COLUMN other int',
      'DROP TABLE plants',
      'TRUNCATE plants',
      'CREATE SCHEMA other',
      'CREATE TEMPORARY TABLE other (id int)',
    ])
      await assert.rejects(
        server.sql(`SET ROLE plants_app; ${statement}`, 'plant_store'),
        /must be owner|permission denied/,
        statement,
      );
  });

  test('files, services and volumes exist; the command for a strict umask names the files', () => {
    const readable = /`chmod 644 (.*)`/.exec(read('deploy/compose.yaml'))?.[1]?.split(' ');
    for (const name of Object.keys(services)) {
      const { build, depends_on, volumes } = mapOf(services[name]);
      if (build !== undefined) {
        const { context, dockerfile } = mapOf(build);
        const file = join('deploy', textOf(context), textOf(dockerfile));
        assert.ok(statSync(join(ROOT, file)).isFile(), `${name}: ${file}`);
      }
      if (depends_on !== undefined)
        for (const other of Object.keys(mapOf(depends_on))) assert.ok(other in services, `${name}: ${other}`);
      for (const volume of stringsOf(volumes)) {
        const [source = ''] = volume.split(':');
        if (source.startsWith('.')) {
          assert.ok(statSync(join(ROOT, 'deploy', source)).isFile(), source);
          assert.ok(readable?.includes(join('deploy', source)), source);
        } else assert.ok(source in mapOf(compose.volumes), `${name}: volume ${source}`);
      }
    }
  });

  test('waits for health checks, and for the migration', () => {
    const dockerfile = read('deploy/Dockerfile');
    for (const service of Object.keys(services))
      for (const [name, how] of Object.entries(mapOf(partOf(service, 'depends_on') ?? {}))) {
        const isOneShot = name === 'migrate';
        assert.equal(mapOf(how).condition, isOneShot ? 'service_completed_successfully' : 'service_healthy');
        const other = mapOf(services[name]);
        const isChecked = 'healthcheck' in other || ('build' in other && /^HEALTHCHECK /m.test(dockerfile));
        assert.ok(isOneShot || isChecked, name);
      }
    for (const name of instances) assert.ok('migrate' in mapOf(partOf(name, 'depends_on')), name);
    // Without a limit, `up --wait` never ends if a migration fails.
    assert.match(textOf(partOf('migrate', 'restart')), /^on-failure:[0-9]+$/);
  });

  test('stop_grace_period exceeds the shutdown limit of the service and its stop delay', () => {
    for (const name of instances) {
      const { stopDelay } = loadConfig({}, { STOP_DELAY: environmentOf(name).STOP_DELAY });
      const [, seconds] = /^([0-9]+)s$/.exec(textOf(partOf(name, 'stop_grace_period'))) ?? [];
      assert.ok(Number(seconds) * 1_000 > FORCED_EXIT_MS + stopDelay, name);
    }
  });
});
