import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { cp, readdir, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import manifest from '../../../package.json' with { type: 'json' };
import { loadConfig } from '../../../src/config.ts';
import { assertVariables, listOf, ROOT, read, run, textOf } from '../../support/deploy-files.ts';
import { freshFolder } from '../../support/engines.ts';
import { startService } from '../../support/service.ts';

interface Package {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

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
  const stringsIn = (json: string | undefined): readonly string[] =>
    listOf(JSON.parse(json ?? '')).map((item) => textOf(item));
  const environment = Object.fromEntries(
    valuesOf('ENV').flatMap((line) => line.split(' ').map((pair) => pair.split(/=(.*)/s, 2))),
  );

  test('base image → the Node version of the tests, slim', () => {
    const { node } = manifest.devDependencies;
    const images = valuesOf('FROM').map((line) => line.replace(/(?<=@sha256:)[0-9a-f]{64}\b/, 'DIGEST'));
    assert.deepEqual(images, [
      `--platform=$BUILDPLATFORM node:${node}-slim@sha256:DIGEST AS build`,
      `node:${node}-slim@sha256:DIGEST`,
    ]);
    assert.equal(new Set(valuesOf('FROM').map((line) => /[0-9a-f]{64}/.exec(line)?.[0])).size, 1);
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
    for (const source of sources) assert.ok(statSync(join(ROOT, source)), source);
  });

  test('build commands → make what the image copies; its entry point is an existing command, without a shell', async () => {
    const app = await freshFolder();
    for (const line of valuesOf('COPY').filter((one) => !one.startsWith('--from=')))
      for (const source of line.split(' ').slice(0, -1))
        await cp(join(ROOT, source), join(app, source), { recursive: true });
    await symlink(join(ROOT, 'node_modules'), join(app, 'node_modules'));
    const [install, build = ''] = valuesOf('RUN');
    assert.equal(install, 'npm ci --ignore-scripts');
    // As in the image, no command of a package is on the path.
    const PATH = `${dirname(process.execPath)}:/usr/bin:/bin`;
    // As in a clone made under `umask 077`, whose modes COPY keeps.
    await run('sh', ['-euc', 'chmod -R go= .'], { cwd: app });
    await run('sh', ['-euc', build], { cwd: app, env: { PATH } });

    const copied = valuesOf('COPY').flatMap(
      (line) => /^--from=build (?:--\S+ )*\/app\/(\S+) /.exec(line)?.[1] ?? [],
    );
    assert.deepEqual(copied, ['dist/package', 'data']);
    assert.deepEqual(await readdir(join(app, 'data')), []);
    const unreadable = [
      'dist/package',
      '(',
      '!',
      '-perm',
      '-o+r',
      '-o',
      '-type',
      'd',
      '!',
      '-perm',
      '-o+x',
      ')',
    ];
    assert.equal((await run('find', unreadable, { cwd: app })).stdout, '');
    const [program = '', ...flags] = stringsIn(valuesOf('ENTRYPOINT')[0]);
    const command = stringsIn(valuesOf('CMD')[0]);
    assert.equal(program, 'node');
    const cwd = join(app, 'dist/package');
    const { stdout } = await run(process.execPath, [...flags, ...command, '--help'], { cwd });
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
    const { packages }: { packages: Record<string, Package> } = JSON.parse(read('package-lock.json'));
    const names = new Set(Object.keys(packages).map((path) => path.replace(/^.*node_modules\//, '')));
    for (const [path, { dependencies, optionalDependencies }] of Object.entries(packages))
      for (const name of Object.keys({ ...dependencies, ...optionalDependencies }))
        assert.ok(names.has(name), `${path} wants ${name}`);
  });
});
