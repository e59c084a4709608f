import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { freshFolder } from '../../support/engines.ts';
import { contentsOf, deadLinks, npmInstall, packClient, publintMessages } from '../../support/packages.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const run = promisify(execFile);

/** Installed separately, since only this file needs them. */
const TOOLS = ['@arethetypeswrong/cli@0.18.5', 'pnpm@12.21.0', 'typescript@5.9.3', 'yarn@1.22.22'];

/** Runs the tools on a tarball, each in a fresh folder. */
const folder = await freshFolder();
const tarball = await packClient(folder);
const bin = join(folder, 'tools', 'node_modules', '.bin');

/** Creates a project. Resolves to its folder. */
async function newProject(name: string, type: 'module' | 'commonjs' = 'module'): Promise<string> {
  const project = join(folder, name);
  await mkdir(project);
  await writeFile(
    join(project, 'package.json'),
    JSON.stringify({ name, private: true, license: 'MIT', type }),
  );
  return project;
}

before(async () => {
  await npmInstall(await newProject('tools'), ...TOOLS);
});

/** Code of a user, as a module and as CommonJS in TypeScript. */
const USER = `import { type Client, type ClientOptions, createClient, type ErrorCode, PlantStoreError } from 'plant-store-client';
const options: ClientOptions = { url: 'http://127.0.0.1:8080', token: async () => 'secret', headers: new Headers(), fetch };
export const similar: ClientOptions = { ...options, fetch: (url, request) => fetch(url, { ...request, mode: 'cors' }) };
export const client: Client = createClient(options);
export async function use(tag: string | undefined, idempotencyKey: string | undefined): Promise<boolean> {
  const { plant, replayed } = await client.createPlant({ id: 7n, name: 'Fern', tag }, { idempotencyKey });
  for await (const { name } of client.listPlants()) console.log(name, plant.tag);
  return replayed;
}
export const codeOf = (failure: unknown): ErrorCode | number | undefined =>
  failure instanceof PlantStoreError ? failure.code : undefined;
class QuotaError extends PlantStoreError {
  readonly owner: string = 'Ada';
}
export const ownerOf = (failure: PlantStoreError): string =>
  failure instanceof QuotaError ? failure.owner : failure.message;
export const causeOf = (failure: PlantStoreError): unknown => failure.cause;
// @ts-expect-error An id is no text.
void client.deletePlant('7');
`;

const COMPILER_OPTIONS = {
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  noImplicitReturns: true,
  skipLibCheck: false,
  noEmit: true,
  types: [],
};

describe("the client's package", () => {
  test('is small and contains only the expected files', async () => {
    assert.deepEqual(await contentsOf(tarball), [
      'CHANGELOG.md',
      'LICENSE',
      'README.md',
      'dist',
      'package.json',
    ]);
    assert.ok((await stat(tarball)).size <= 60_000);
    const read = (file: string): Promise<string> => readFile(join(ROOT, file), 'utf8');
    assert.equal(await read('client/LICENSE'), await read('LICENSE'));
  });

  test('has a README that links nothing that it lacks', async () => {
    assert.deepEqual(await deadLinks(tarball), []);
  });

  test('passes publint and Are The Types Wrong', async () => {
    assert.deepEqual(await publintMessages(tarball), []);
    const { stdout } = await run(join(bin, 'attw'), [tarball, '--format', 'json']);
    const { analysis, problems } = JSON.parse(stdout);
    assert.deepEqual([analysis.types.kind, problems ?? {}], ['included', {}]);
  });

  test('strict TypeScript of a user and every @example compile, with each setting of module, and below ES2022', async () => {
    const project = await newProject('types');
    await npmInstall(project, tarball);
    await writeFile(join(project, 'user.ts'), USER);
    await writeFile(join(project, 'user.cts'), USER);
    const examples = await examplesIn(join(project, 'node_modules', 'plant-store-client', 'dist'));
    assert.equal(examples.length, 7);
    for (const [index, example] of examples.entries())
      await writeFile(join(project, `example-${index}.ts`), `${example}export {};\n`);
    for (const [module, target] of [
      ['nodenext', 'es2022'],
      ['node16', 'es2022'],
      ['preserve', 'es2022'],
      ['preserve', 'es2020'],
    ]) {
      const compilerOptions = { ...COMPILER_OPTIONS, module, target, lib: [target, 'dom'] };
      await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
      for (const compiler of ['tsc', join(bin, 'tsc')]) {
        const { stdout } = await run(compiler, [], { cwd: project }).catch((error: unknown) => Object(error));
        assert.equal(stdout, '', `${compiler}, ${module}, ${target}`);
      }
    }
  });

  // Includes the texts of errors of fetch for requests that were not sent, which deletePlant depends on.
  test('bundled for a page → 6.3 kB with gzip, rounded', async () => {
    const project = await newProject('bundle');
    await npmInstall(project, tarball);
    await writeFile(join(project, 'all.js'), "export * from 'plant-store-client';\n");
    const flags = ['--bundle', '--minify', '--format=esm', 'all.js'];
    const { stdout } = await run('esbuild', flags, { cwd: project });
    const { length } = gzipSync(stdout, { level: 9 });
    assert.ok(
      length < 6_350,
      `${length} bytes; correct this title and docs/decisions/0020-client-package.md`,
    );
  });

  for (const [manager, ...args] of [
    ['npm', 'install', '--prefer-offline', '--no-audit', '--no-fund'],
    ['pnpm', 'add'],
    ['yarn', 'add', '--no-progress'],
  ] as const) {
    test(`installed by ${manager} → one package, without a warning`, async () => {
      const project = await newProject(manager);
      const env = { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` };
      const { stdout, stderr } = await run(manager, [...args, tarball], { cwd: project, env });
      assert.doesNotMatch(stdout + stderr, /\bwarn/i);
      const names = (await readdir(join(project, 'node_modules'))).filter((name) => !name.startsWith('.'));
      assert.deepEqual(names, ['plant-store-client']);
      const { stdout: found } = await run(
        'node',
        ['--print', "typeof require('plant-store-client').createClient"],
        {
          cwd: project,
        },
      );
      assert.equal(found, 'function\n');
    });
  }
});

/** The code of the `@example` comments in declaration files. */
async function examplesIn(dist: string): Promise<readonly string[]> {
  const files = (await readdir(dist)).filter((file) => file.endsWith('.d.ts'));
  const texts = await Promise.all(files.map((file) => readFile(join(dist, file), 'utf8')));
  return texts.flatMap((text) =>
    [...text.matchAll(/@example\n *\* ```ts\n([\s\S]*?) *\* ```/g)].map(([, code = '']) =>
      code.replace(/^ *\* ?/gm, ''),
    ),
  );
}
