import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { read, run } from '../support/deploy-files.ts';
import { newInstallation } from '../support/program.ts';

test('restore with the image: on an empty volume, then twice on a store → the backup; each old store is kept', async (t) => {
  const [, flags = '', script = ''] =
    /--entrypoint sh plant-store (-\w+) \\\n *'([^']*)'/.exec(read('docs/operations.md')) ?? [];
  const [{ folder: backups, ...source }, volume] = await Promise.all([
    newInstallation(t),
    newInstallation(t),
  ]);
  await source.token('alice');
  await source.run(['backup', 'plants-DATE.db']);
  // Only the image has the account 1000 for sure.
  const local = script
    .replaceAll('/data', '"$DATA"')
    .replaceAll('/backup', '"$BACKUP"')
    .replaceAll('-o 1000 -g 1000 ', '')
    .replaceAll('chown 1000:1000', 'test -d');
  const env = { ...process.env, DATA: volume.folder, BACKUP: backups };
  const kept: string[] = [];
  for (const owners of [[], ['bob'], ['carol', 'dave']]) {
    for (const owner of owners) await volume.token(owner);
    const { stdout } = await run('sh', [flags, local], { env });
    const [, old] = /^the old store is in (.*)\n$/.exec(stdout) ?? [];
    if (old !== undefined) kept.push(old);
    assert.deepEqual(await ownersOf(volume.databaseUrl), ['alice']);
  }
  assert.equal(kept.length, 2);
  assert.deepEqual(await Promise.all(kept.map((old) => ownersOf(`sqlite:${join(old, 'plants.db')}`))), [
    ['alice', 'bob'],
    ['alice', 'carol', 'dave'],
  ]);

  async function ownersOf(databaseUrl: string): Promise<string[]> {
    const { stdout } = await volume.run(['token', 'list', '--json', '--database-url', databaseUrl]);
    const tokens: { owner: string }[] = JSON.parse(stdout);
    return tokens.map(({ owner }) => owner).sort();
  }
});
