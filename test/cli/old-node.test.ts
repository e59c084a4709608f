import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { freshFolder } from '../support/engines.ts';

const textOf = (path: string) => readFile(new URL(`../../${path}`, import.meta.url), 'utf8');

const OLD_NODE = { node: '20.20.2' };

/** Lets a clone run on a Node of other versions, and returns its message. `files` are further files of the clone. */
async function messageIn(clone: string, versions: object, ...files: readonly string[]): Promise<string> {
  for (const file of ['src/cli/main.ts', ...files]) {
    await mkdir(dirname(join(clone, file)), { recursive: true });
    await writeFile(join(clone, file), '');
  }
  await mkdir(join(clone, 'bin'));
  await writeFile(join(clone, 'package.json'), '{"type":"module"}');
  await writeFile(join(clone, 'bin/compile-cache.js'), await textOf('bin/compile-cache.js'));
  const program = await textOf('bin/plant-store.js');
  const path = join(clone, 'bin/plant-store.js');
  await writeFile(path, program.replace('= process.versions', `= ${JSON.stringify(versions)}`));
  const { status, stderr } = spawnSync(process.execPath, [path], { encoding: 'utf8' });
  assert.equal(status, 1);
  return stderr;
}

test('older Node in a clone → says how to install the required version', async () => {
  assert.equal(
    await messageIn(await freshFolder(), OLD_NODE),
    'plant-store: needs Node 24 from 24.20, or Node 26.7 or newer; this is 20.20.2. Run `npm ci --ignore-scripts=false`, which installs it, and start with `npx plant-store`\n',
  );
});

for (const node of ['24.19.1', '25.0.0', '25.9.0', '26.6.2'])
  test(`Node ${node} → names the required versions`, async () => {
    const versions = { node, sqlite: '3.53.4' };
    assert.match(
      await messageIn(await freshFolder(), versions),
      /needs Node 24 from 24\.20, or Node 26\.7 or newer; this is /,
    );
  });

for (const [node, sqlite] of [
  ['26.7.0', '3.51.2'],
  ['24.20.0', undefined],
] as const)
  test(`Node ${node} with SQLite ${sqlite} → names the required version of SQLite`, async () => {
    assert.match(
      await messageIn(await freshFolder(), { node, sqlite }),
      /needs a Node with SQLite 3\.51\.3 or newer, .* this is \S+ with SQLite (3\.51\.2|0)\. Run `npm ci /,
    );
  });

test('older Node next to the installed one → says how to run that', async () => {
  const folder = await freshFolder();
  const installed = 'node_modules/node/bin/node';
  const command = /`node_modules\/\.bin\/node bin\/plant-store\.js`/;
  const message = await messageIn(join(folder, 'clone'), OLD_NODE, installed);
  assert.match(message, command);
  assert.match(message, /`npx plant-store`/);
  // The PATH cannot contain this folder, so npm and npx do not find the installed Node.
  const inColon = await messageIn(join(folder, 'a:b'), OLD_NODE, installed);
  assert.match(inColon, command);
  assert.match(inColon, /a path without `:`/);
  assert.doesNotMatch(inColon, /npm|npx/);
});

test('installed Node of an earlier version → says to install the required one', async () => {
  const folder = await freshFolder();
  await mkdir(join(folder, 'node_modules/node/bin'), { recursive: true });
  await symlink(process.execPath, join(folder, 'node_modules/node/bin/node'));
  assert.match(await messageIn(folder, OLD_NODE), /npm ci/);
});

test('the minimum Node is the same in all places that name it', async () => {
  const { engines } = JSON.parse(await textOf('package.json'));
  const [, of24, of26] = /^\^(24\.\d+) \|\| >=(26\.\d+)$/.exec(engines.node) ?? [];
  assert.ok(
    (await textOf('bin/plant-store.js')).includes(`MIN_NODE_24 = '${of24}';\nconst MIN_NODE_26 = '${of26}'`),
  );
  assert.ok((await textOf('build/bundle.ts')).includes(`target: 'node${of24}'`));
  const range = `24 from ${of24}, or Node ${of26} or newer`;
  assert.ok((await textOf('build/package-readme.md')).includes(range));
  assert.ok((await textOf('docs/operations.md')).includes(range));
  const { dependencies } = JSON.parse(await textOf('build/supported-nodes/package.json'));
  assert.equal(dependencies['oldest-node'], `npm:node@${of24}.0`);
});
