import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { engines, freshFolder } from '../../support/engines.ts';
import { startService } from '../../support/service.ts';

// Installed separately, since the generator needs an older TypeScript than this project.
const PACKAGES = ['openapi-typescript@7.13.0', 'openapi-fetch@0.17.0', 'typescript@5.9.3'];

const PROGRAM = `
import createClient from 'openapi-fetch';
import type { paths } from './plants.ts';

const [url = '', token = ''] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url, headers: { authorization: \`Bearer \${token}\` } });
const created = await client.POST('/plants', { body: { id: 7, name: 'Fern', tag: 'Polypodium' } });
const listed = await client.GET('/plants', { params: { query: { limit: 20 } } });
const names: (string | undefined)[] | undefined = listed.data?.map((plant) => plant.name);
const deleted = await client.DELETE('/plants/{id}', { params: { path: { id: 7 } } });
const again = await client.DELETE('/plants/{id}', { params: { path: { id: 7 } } });
const error: number | undefined = again.error?.error;
console.log(created.data?.tag, names, deleted.response.status, error);
// @ts-expect-error The name is required.
await client.POST('/plants', { body: { id: 7 } });
`;

test('client generated from the OpenAPI document → typed; creates, lists and deletes', async (t) => {
  const folder = await freshFolder();
  const run = (program: string, ...args: readonly string[]) =>
    promisify(execFile)(program, args, { cwd: folder });
  await writeFile(join(folder, 'package.json'), '{"private":true,"type":"module"}');
  await run('npm', 'install', '--prefer-offline', '--no-audit', '--no-fund', ...PACKAGES);
  for (const engine of engines) {
    await t.test(`generated and used on ${engine.name}`, async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      await run('npx', 'openapi-typescript', `${service.url}/openapi.json`, '--output', 'plants.ts');
      await writeFile(join(folder, 'program.ts'), PROGRAM);
      const { stdout } = await run(process.execPath, 'program.ts', service.url, await service.token());
      assert.equal(stdout, "Polypodium [ 'Fern' ] 204 40400\n");
      await service.close();
    });
  }
  const types = fileURLToPath(new URL('../../../node_modules/@types/node', import.meta.url));
  await mkdir(join(folder, 'node_modules', '@types'));
  await cp(types, join(folder, 'node_modules', '@types', 'node'), { recursive: true });
  const flags = ['--strict', '--noEmit', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2024'];
  await run('npx', 'tsc', ...flags, '--allowImportingTsExtensions', 'program.ts');
});
