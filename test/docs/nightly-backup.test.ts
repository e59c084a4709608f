import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { read } from '../support/deploy-files.ts';
import { newInstallation } from '../support/program.ts';
import { runScript } from '../support/shell-script.ts';

const OLD = 'plants-2001-02-03.db';

test('the nightly script makes a backup, deletes backups over 30 days old, and reports the time', async (t) => {
  const [, documented = ''] = /```sh\n(#!\/bin\/sh\n.*?)```/s.exec(read('docs/operations.md')) ?? [];
  const store = await newInstallation(t);
  const backups = join(store.folder, 'backups');
  const metrics = join(store.folder, 'metrics');
  const script = documented
    .replaceAll('/var/lib/plant-store/plants.db', store.file)
    .replaceAll('/usr/local/bin/', '')
    .replaceAll('/backups', backups)
    .replaceAll('/var/lib/node_exporter', metrics);
  await mkdir(backups);
  await mkdir(metrics);
  const before = new Date(Date.now() - 32 * 86_400_000);
  for (const name of [OLD, 'other.db']) {
    await writeFile(join(backups, name), '');
    await utimes(join(backups, name), before, before);
  }

  // There is no store yet.
  await assert.rejects(runScript(store, script));
  assert.deepEqual(await readdir(metrics), []);
  assert.deepEqual((await readdir(backups)).sort(), ['other.db', OLD]);

  await store.token('alice');
  const begun = Math.floor(Date.now() / 1_000);
  await runScript(store, script);
  const [made = '', ...others] = (await readdir(backups)).filter((name) => name !== 'other.db');
  assert.match(made, /^plants-\d{4}-\d\d-\d\d\.db$/);
  assert.deepEqual(others, []);
  assert.deepEqual(await readdir(metrics), ['plants.prom']);
  const [, seconds] =
    /^plants_backup_time_seconds (\d+)\n$/.exec(await readFile(join(metrics, 'plants.prom'), 'utf8')) ?? [];
  assert.ok(Number(seconds) >= begun);
  const { code, stdout } = await store.run([
    'token',
    'list',
    '--database-url',
    `sqlite:${join(backups, made)}`,
  ]);
  assert.equal(code, 0);
  assert.match(stdout, /alice/);
});
