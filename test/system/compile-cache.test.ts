import assert from 'node:assert/strict';
import { chmod, chown, mkdir, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { needs } from '../support/needs.ts';
import { type Installation, newInstallation, TOGETHER } from '../support/program.ts';

const CACHE = join('.cache', 'plant-store');

describe('the cache of compiled code', TOGETHER, () => {
  it('umask 0 → all folders and files are accessible by their owner only', async (t) => {
    const installation = await newInstallation(t);
    await version(installation);
    const paths = await readdir(join(installation.folder, '.cache'), { recursive: true });
    assert.ok(paths.length > 2, `no file in ${paths}`);
    for (const path of ['', ...paths]) {
      const { mode } = await stat(join(installation.folder, '.cache', path));
      assert.equal(mode & 0o077, 0, `${path}: ${mode.toString(8)}`);
    }
  });

  for (const [title, path, mode] of [
    ['group can write to it', CACHE, 0o770],
    ['others can write to it', CACHE, 0o707],
    ['others can write to a folder in it', join(CACHE, 'v26'), 0o777],
    ['others can write to the folder above', '.cache', 0o777],
    ['others can write to the home folder', '.', 0o777],
  ] as const)
    it(`${title} → not used`, async (t) => {
      const installation = await newInstallation(t);
      await mkdir(join(installation.folder, CACHE, 'v26'), { recursive: true, mode: 0o700 });
      await chmod(join(installation.folder, path), mode);
      await version(installation);
      assert.deepEqual(await readdir(join(installation.folder, CACHE)), ['v26']);
    });

  it('another user owns it → not used', needs('root', process.getuid?.() === 0), async (t) => {
    const installation = await newInstallation(t);
    await mkdir(join(installation.folder, CACHE), { recursive: true, mode: 0o700 });
    await chown(join(installation.folder, CACHE), 65_534, 65_534);
    await version(installation);
    assert.deepEqual(await readdir(join(installation.folder, CACHE)), []);
  });

  for (const HOME of ['', 'home', '.'])
    it(`HOME is ${JSON.stringify(HOME)} → no cache is created`, async (t) => {
      const installation = await newInstallation(t);
      await mkdir(join(installation.folder, 'home'));
      await version(installation, { HOME });
      assert.deepEqual(await readdir(installation.folder, { recursive: true }), ['home']);
    });
});

/** Runs the program with umask 0, without the shared cache of the tests. */
async function version({ run }: Installation, env: Readonly<Record<string, string>> = {}): Promise<void> {
  const script = 'umask 000 && unset NODE_COMPILE_CACHE NODE_DISABLE_COMPILE_CACHE && exec "$@"';
  const wrap = (command: readonly string[]) => ['bash', '-c', script, 'bash', ...command];
  const { code, stderr } = await run(['--version'], { env, wrap });
  assert.deepEqual([code, stderr], [0, '']);
}
