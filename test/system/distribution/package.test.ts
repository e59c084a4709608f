import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, cp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { createClient } from '../../../client/src/client.ts';
import manifest from '../../../package.json' with { type: 'json' };
import { engines, freshFolder } from '../../support/engines.ts';
import { contentsOf, deadLinks, npmInstall, pack, publintMessages } from '../../support/packages.ts';
import { newInstallation } from '../../support/program.ts';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const run = promisify(execFile);

/** A folder with only the packed package installed. */
const installed = await newInstallation({ after });
await run('npm', ['run', 'build'], { cwd: ROOT });
const tarball = await pack(installed.folder, join(ROOT, 'dist/package'));
await writeFile(join(installed.folder, 'package.json'), '{"private":true,"type":"module"}');
const npmSaid = await npmInstall(installed.folder, tarball);

test('npm ci in a clone → installs Node and builds the page, also with NODE_ENV=production', async () => {
  const folder = await freshFolder();
  for (const file of ['package.json', 'package-lock.json', '.npmrc']) {
    await copyFile(join(ROOT, file), join(folder, file));
  }
  const env = { ...process.env, NODE_ENV: 'production' };
  const { stdout } = await run('npm', ['ci', '--dry-run', '--ignore-scripts', '--loglevel=notice'], {
    cwd: folder,
    env,
  });
  for (const name of ['node', '@scalar/fastify-api-reference']) {
    assert.match(stdout, new RegExp(`^add ${name} `, 'm'));
  }
});

test('npm in a clone → ignores settings of the user with which `npm ci` fails on Node 20', async () => {
  const folder = await freshFolder();
  for (const file of ['package.json', '.npmrc']) await copyFile(join(ROOT, file), join(folder, file));
  const userconfig = join(folder, 'user.npmrc');
  await writeFile(userconfig, 'engine-strict=true\nbin-links=false\n');
  const flags = ['config', 'get', 'engine-strict', 'bin-links', '--userconfig', userconfig];
  const { stdout } = await run('npm', flags, { cwd: folder });
  assert.equal(stdout, 'engine-strict=false\nbin-links=true\n');
});

test('npm run build after an installation without scripts → builds the script of the page /docs', async () => {
  const folder = await freshFolder();
  for (const name of ['package.json', 'bin', 'build', 'src', 'LICENSE', 'CHANGELOG.md'])
    await cp(join(ROOT, name), join(folder, name), { recursive: true });
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  await rm(join(folder, 'src/http/api-reference.js.gz'));
  await run('npm', ['run', 'build'], { cwd: folder });
  assert.ok((await stat(join(folder, 'dist/package/lib/http/api-reference.js.gz'))).size > 0);
});

test('installed package → the only package, without an install script to approve', async () => {
  assert.doesNotMatch(npmSaid, /scripts|plant-store|deprecated|EBADENGINE/);
  const { stdout } = await run('npm', ['ls', '--all', '--parseable'], { cwd: installed.folder });
  assert.deepEqual(stdout.trim().split('\n').slice(1), [
    join(installed.folder, 'node_modules', 'plant-store'),
  ]);
});

test('package → has the licence of every bundled package, and of what the script of /docs contains', async () => {
  const folder = join(installed.folder, 'node_modules', 'plant-store');
  const notices = await readFile(join(folder, 'THIRD-PARTY.txt'), 'utf8');
  for (const name of Object.keys(manifest.dependencies))
    assert.match(notices, new RegExp(`^${name} \\d+\\.\\d+\\.\\d+ \\(`, 'm'));
  const script = gunzipSync(await readFile(join(folder, 'lib/http/api-reference.js.gz'))).toString();
  for (const text of [notices, script])
    assert.match(text, /^highlight\.js \(BSD-3-Clause\)\n {2}Copyright .*\n\nBSD 3-Clause/m);
});

test('package → passes publint and contains only the expected files', async () => {
  assert.deepEqual(await publintMessages(tarball), []);
  const contents = ['CHANGELOG.md', 'LICENSE', 'README.md', 'THIRD-PARTY.txt', 'bin', 'lib', 'package.json'];
  assert.deepEqual(await contentsOf(tarball), contents);
});

test('package → its README links nothing that it lacks', async () => {
  assert.deepEqual(await deadLinks(tarball), []);
});

describe('the installed program', () => {
  test('npx in an empty folder → serves, with the page, and stops on a signal', async () => {
    const args = ['plant-store', 'serve', '--port', '0', '--admin-port', '0'];
    // A separate process group, as in a shell: a terminal signals the whole group, and npx forwards no signals.
    const npx = spawn('npx', args, {
      cwd: installed.folder,
      detached: true,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const closed = once(npx, 'close');
    try {
      const url = await findUrl(npx.stdout);
      for (const path of ['/docs', '/docs/scalar.js', '/openapi.json']) {
        assert.equal((await fetch(url + path)).status, 200, path);
      }
      assert.equal((await fetch(`${url}/plants`)).status, 401);
    } finally {
      process.kill(-Number(npx.pid), 'SIGTERM');
      await closed;
    }
  });

  test('works on the oldest supported Node', async () => {
    const folder = await freshFolder();
    await npmInstall(folder, 'node@24');
    const node = join(folder, 'node_modules', 'node', 'bin', 'node');
    assert.match((await run(node, ['--version'])).stdout, /^v24\./);
    const service = await serveWith(node);
    const token = (await plantStore(node, 'token', 'create', 'bob')).stdout.trim();
    const client = createClient({ url: service.url, token });
    await client.createPlant({ id: 9007199254740993n, name: 'Fern' });
    assert.deepEqual(await Array.fromAsync(client.listPlants()), [{ name: 'Fern' }]);
    assert.equal((await service.stop()).code, 0);
  });

  for (const engine of engines)
    test(`its files are removed while it serves → serves on, and stops with code 0, on ${engine.name}`, async (t) => {
      const copy = await freshFolder();
      await cp(join(installed.folder, 'node_modules', 'plant-store'), copy, { recursive: true });
      const options = {
        env: { DATABASE_URL: await engine.freshUrl(t), OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' },
        wrap: ([node = '', , ...args]: readonly string[]) => [
          node,
          join(copy, 'bin/plant-store.js'),
          ...args,
        ],
      };
      const token = (await installed.runProcess(['token', 'create', 'bob'], options)).stdout.trim();
      const { url, adminUrl, stop } = await installed.serve(options);
      await rm(copy, { recursive: true });
      const client = createClient({ url, token });
      await client.createPlant({ id: 1n, name: 'Fern' });
      assert.equal((await Array.fromAsync(client.listPlants())).length, 1);
      await client.deletePlant(1n);
      for (const path of [`${url}/docs`, `${url}/openapi.json`, `${adminUrl}/ready`, `${adminUrl}/metrics`])
        assert.equal((await fetch(path)).status, 200, path);
      const { code, stdout } = await stop();
      assert.equal(code, 0, stdout);
    });

  test('older Node → names the required version', async () => {
    const folder = join(installed.folder, 'node_modules', 'plant-store', 'bin');
    const text = await readFile(join(folder, 'plant-store.js'), 'utf8');
    const old = text.replace('= process.versions', "= { node: '20.1.0' }");
    await writeFile(join(folder, 'old.js'), old);
    const failed = await run(process.execPath, ['old.js'], { cwd: folder }).catch((error: unknown) => error);
    assert.ok(failed instanceof Error && 'stderr' in failed);
    assert.equal(
      failed.stderr,
      'plant-store: needs Node 24 from 24.20, or Node 26.7 or newer; this is 20.1.0\n',
    );
  });
});

async function findUrl(stdout: Readable): Promise<string> {
  for await (const line of createInterface(stdout)) {
    const url = /"url":"([^"]+)".*"msg":"serving"/.exec(line)?.[1];
    if (url === undefined) continue;
    stdout.resume();
    return url;
  }
  throw new Error('the service exited before it was serving');
}

/** The command line of the installed program on a version of Node. */
const byNode = (node: string) => (command: readonly string[]) => [
  node,
  join(installed.folder, 'node_modules', '.bin', 'plant-store'),
  ...command.slice(2),
];

function serveWith(node: string) {
  return installed.serve({ wrap: byNode(node) });
}

function plantStore(node: string, ...args: readonly string[]) {
  return installed.runProcess(args, { wrap: byNode(node) });
}
