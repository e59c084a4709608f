import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { freshFolder } from '../support/engines.ts';

const textOf = (path: string) => readFile(new URL(`../../${path}`, import.meta.url), 'utf8');

test('older Node in a clone → says how to install the required version', async () => {
  const folder = await freshFolder();
  await mkdir(join(folder, 'bin'));
  await mkdir(join(folder, 'src/cli'), { recursive: true });
  await writeFile(join(folder, 'src/cli/main.ts'), '');
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  await writeFile(join(folder, 'bin/compile-cache.js'), await textOf('bin/compile-cache.js'));
  const program = await textOf('bin/plant-store.js');
  const path = join(folder, 'bin/plant-store.js');
  await writeFile(path, program.replaceAll('process.versions.node', "'20.20.2'"));
  const { status, stderr } = spawnSync(process.execPath, [path], { encoding: 'utf8' });
  assert.equal(
    stderr,
    'plant-store: needs Node 24.15 or newer; this is 20.20.2. Run `npm ci --ignore-scripts=false`, which installs it, and start with `npx plant-store`\n',
  );
  assert.equal(status, 1);
});

test('the minimum Node is the same in all places that name it', async () => {
  const { engines } = JSON.parse(await textOf('package.json'));
  const [, min] = /^>=(\d+\.\d+)$/.exec(engines.node) ?? [];
  assert.ok((await textOf('bin/plant-store.js')).includes(`MIN_NODE = '${min}'`));
  assert.ok((await textOf('build/bundle.ts')).includes(`target: 'node${min}'`));
  assert.ok((await textOf('build/package-readme.md')).includes(`Node ${min} or newer`));
});
