import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { publint } from 'publint';
import manifest from '../../package.json' with { type: 'json' };
import { freshFolder } from '../support/engines.ts';
import { newInstallation } from '../support/program.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const run = promisify(execFile);

/** Sample code of a user of the client, in TypeScript. The JavaScript version has no `types`. */
const PROGRAM = `
const client = createClient({ url: process.argv[2] ?? '', token: process.argv[3] ?? '' });
const { name } = await client.createPlant({ id: 9007199254740993n, name: 'Fern', tag: 'Polypodium' });
for await (const plant of client.listPlants()) console.log(name, plant.tag);
await client.deletePlant(9007199254740993n);
await client.deletePlant(9007199254740993n).catch((failure) => {
  if (failure instanceof PlantStoreError) console.log(failure.error);
});
`;
const IN_JAVASCRIPT = `import { createClient, PlantStoreError } from 'plant-store/client';\n${PROGRAM}`;
const IN_TYPESCRIPT = `import { type Client, createClient, type Plant, PlantStoreError } from 'plant-store/client';
declare const process: { argv: string[] };
declare const console: { log(...values: unknown[]): void };
export const first = async (client: Client): Promise<Plant | void> => (await client.listPlants({ limit: 1 }).next()).value;
${PROGRAM}`;

/** A folder with only the packed package installed. */
const installed = await newInstallation({ after });
const tarball = await pack(installed.folder);
await writeFile(join(installed.folder, 'package.json'), '{"private":true,"type":"module"}');
const npmSaid = await npmInstall(installed.folder, tarball);

async function pack(folder: string): Promise<string> {
  await run('npm', ['run', 'build'], { cwd: ROOT });
  const flags = ['--json', '--pack-destination', folder];
  const { stdout } = await run('npm', ['pack', './dist/package', ...flags], { cwd: ROOT });
  const name = /"filename": "([^"]+)"/.exec(stdout)?.[1];
  assert.ok(name !== undefined, stdout);
  return join(folder, name);
}

/** Installs packages into a folder. Resolves to the warnings of npm. */
async function npmInstall(folder: string, ...packages: readonly string[]): Promise<string> {
  const flags = ['--loglevel=warn', '--prefer-offline', '--no-audit', '--no-fund'];
  return (await run('npm', ['install', ...flags, ...packages], { cwd: folder })).stderr;
}

test('npm ci in a clone → installs Node and builds the page, also with NODE_ENV=production', async () => {
  const folder = await freshFolder();
  for (const file of ['package.json', 'package-lock.json', '.npmrc']) {
    await copyFile(join(ROOT, file), join(folder, file));
  }
  const env = { ...process.env, NODE_ENV: 'production' };
  const { stdout } = await run('npm', ['ci', '--dry-run', '--ignore-scripts'], { cwd: folder, env });
  for (const name of ['node', '@scalar/fastify-api-reference']) {
    assert.match(stdout, new RegExp(`^add ${name} `, 'm'));
  }
});

test('installed package → the only package, without an install script to approve', async () => {
  assert.doesNotMatch(npmSaid, /scripts|plant-store|deprecated|EBADENGINE/);
  const { stdout } = await run('npm', ['ls', '--all', '--parseable'], { cwd: installed.folder });
  assert.deepEqual(stdout.trim().split('\n').slice(1), [
    join(installed.folder, 'node_modules', 'plant-store'),
  ]);
});

test('package → has the licence of every bundled package', async () => {
  const folder = join(installed.folder, 'node_modules', 'plant-store');
  const notices = await readFile(join(folder, 'THIRD-PARTY.txt'), 'utf8');
  for (const name of Object.keys(manifest.dependencies))
    assert.match(notices, new RegExp(`^${name} \\d+\\.\\d+\\.\\d+ \\(`, 'm'));
});

test('package → passes publint and contains only the expected files', async () => {
  const bytes = await readFile(tarball);
  const copy = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  const { messages } = await publint({ pack: { tarball: copy }, strict: true });
  assert.deepEqual(messages, []);
  const { stdout } = await run('tar', ['--list', '--file', tarball]);
  const rooms = new Set(
    stdout
      .trim()
      .split('\n')
      .map((path) => path.split('/').slice(1, 2).join('/')),
  );
  assert.deepEqual([...rooms].sort(), [
    'CHANGELOG.md',
    'LICENSE',
    'README.md',
    'THIRD-PARTY.txt',
    'bin',
    'lib',
    'package.json',
  ]);
});

test('installed client → works from JavaScript and from strict TypeScript', async () => {
  const { folder } = installed;
  await writeFile(join(folder, 'client.js'), IN_JAVASCRIPT);
  await writeFile(join(folder, 'client.ts'), IN_TYPESCRIPT);
  const flags = ['--strict', '--noEmit', '--module', 'nodenext', '--target', 'es2024', '--types', ''];
  const { stdout } = await run('tsc', [...flags, 'client.ts'], { cwd: folder }).catch((error: unknown) => {
    assert.ok(error instanceof Error && 'stdout' in error);
    return { stdout: String(error.stdout) };
  });
  assert.equal(stdout, '');
  const service = await serveWith(process.execPath);
  for (const file of ['client.js', 'client.ts']) {
    const token = (await plantStore(process.execPath, 'token', 'create', 'alice')).stdout.trim();
    const { stdout } = await run(process.execPath, [file, service.url, token], { cwd: folder });
    assert.equal(stdout, 'Fern Polypodium\n40400\n');
  }
  assert.equal((await service.stop()).code, 0);
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
    const { stdout } = await run(node, ['client.js', service.url, token], { cwd: installed.folder });
    assert.equal(stdout, 'Fern Polypodium\n40400\n');
    assert.equal((await service.stop()).code, 0);
  });

  test('older Node → names the required version', async () => {
    const text = await readFile(
      join(installed.folder, 'node_modules', 'plant-store', 'bin', 'plant-store.js'),
      'utf8',
    );
    const old = text
      .replace('process.versions.node', "'20.1.0'")
      .replace('process.versions.node', "'20.1.0'");
    await writeFile(join(installed.folder, 'old.js'), old);
    const failed = await run(process.execPath, ['old.js'], { cwd: installed.folder }).catch(
      (error: unknown) => error,
    );
    assert.ok(failed instanceof Error && 'stderr' in failed);
    assert.equal(failed.stderr, 'plant-store: needs Node 24.15 or newer; this is 20.1.0\n');
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
