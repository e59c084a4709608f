import assert from 'node:assert/strict';
import { chmod, chown, mkdir, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import manifest from '../../package.json' with { type: 'json' };
import { NEEDS, needs } from '../support/needs.ts';
import { endOf, type Installation, newInstallation, TOGETHER } from '../support/program.ts';
import { withoutCoverage } from '../support/without-coverage.ts';

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

  it('HOME does not exist, or cannot be created → no folder is created, and the program runs', async (t) => {
    const installation = await newInstallation(t);
    for (const HOME of [join(installation.folder, 'home'), '/proc/nosuch'])
      await version(installation, { HOME });
    assert.deepEqual(await readdir(installation.folder), []);
  });
});

it('user without a home and without a passwd entry, as in a container → runs', async (t) => {
  const installation = await newInstallation(t);
  const asUnprivileged =
    process.getuid?.() === 0
      ? ['setpriv', '--reuid', '65432', '--regid', '65432', '--clear-groups']
      : ['unshare', '--user', '--map-user', '65432'];
  const wrap = (command: readonly string[]): readonly string[] => [
    ...withoutCoverage(['env', '--unset=HOME', '--unset=NODE_COMPILE_CACHE', ...asUnprivileged]),
    ...command,
  ];
  const changed = await endOf(installation.start([], { wrap: () => wrap(['true']) }));
  if (changed.code !== 0) return t.skip(`${NEEDS}permission to become another user`);
  const { code, stdout, stderr } = await installation.runProcess(['--version'], { wrap });
  assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: `${manifest.version}\n`, stderr: '' });
});

/** Runs the program with umask 0, without the shared cache of the tests. */
async function version(
  { runProcess }: Installation,
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  const script = 'umask 000 && unset NODE_COMPILE_CACHE NODE_DISABLE_COMPILE_CACHE && exec "$@"';
  const wrap = (command: readonly string[]) => ['bash', '-c', script, 'bash', ...command];
  const { code, stderr } = await runProcess(['--version'], { env, wrap });
  assert.deepEqual([code, stderr], [0, '']);
}
