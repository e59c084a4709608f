import assert from 'node:assert/strict';
import { glob, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import manifest from '../../../package.json' with { type: 'json' };
import { freshFolder } from '../../support/engines.ts';
import { needsProgram } from '../../support/needs.ts';
import { runFirstRequests, runScript } from '../../support/readme.ts';

test('npx runs the command of this clone, even when its cache names the path of an older version', async () => {
  const cache = await freshFolder();
  const version = (): Promise<string> =>
    runScript(`NPM_CONFIG_CACHE='${cache}' npx plant-store --version`, '');
  assert.equal(await version(), `${manifest.version}\n`);

  const remembered = await Array.fromAsync(
    glob(join(cache, '_npx', '*', 'node_modules', '.bin', 'plant-store')),
  );
  for (const link of remembered) {
    await rm(link);
    await symlink('../plant-store/where/it/was', link);
  }
  assert.equal(await version(), `${manifest.version}\n`);
});

test(
  'the first requests in README, repeated with the same token → the same output',
  needsProgram('curl'),
  (t) => runFirstRequests(t, 2),
);
