import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmod, chown, mkdir, readdir, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import manifest from '../../../package.json' with { type: 'json' };
import { NEEDS, needs, needsProgram } from '../../support/needs.ts';
import { endOf, type Installation, newInstallation, TOGETHER } from '../../support/program.ts';
import { withoutCoverage } from '../../support/without-coverage.ts';

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

  for (const [title, path] of [
    ['it', CACHE],
    ['the folder above', '.cache'],
    ['the home folder', '.'],
    ['a folder above the home folder', '..'],
  ] as const)
    it(`another user owns ${title} → not used`, needs('root', process.getuid?.() === 0), async (t) => {
      const { installation, HOME } = await homeInFolder(t);
      await mkdir(join(HOME, CACHE), { recursive: true, mode: 0o700 });
      await chown(join(HOME, path), 65_534, 65_534);
      await version(installation, { HOME });
      assert.deepEqual(await readdir(join(HOME, CACHE)), []);
    });

  it('others can write to a folder above the home folder → not created, unless that folder is sticky', async (t) => {
    const { installation, HOME } = await homeInFolder(t);
    await chmod(join(HOME, '..'), 0o777);
    await version(installation, { HOME });
    assert.deepEqual(await readdir(HOME), []);
    await chmod(join(HOME, '..'), 0o1777);
    await version(installation, { HOME });
    assert.notDeepEqual(await readdir(join(HOME, CACHE)), []);
  });

  for (const [title, target, isUsed] of [
    ['to a folder of this user', 'private', true],
    ['into a folder that others can write to', 'shared/cache', false],
  ] as const)
    it(`a link ${title} → ${isUsed ? '' : 'not '}used`, async (t) => {
      const { installation, HOME } = await homeInFolder(t);
      await mkdir(join(installation.folder, target), { recursive: true, mode: 0o700 });
      await mkdir(join(installation.folder, 'shared'), { recursive: true });
      await chmod(join(installation.folder, 'shared'), 0o777);
      await symlink(join(installation.folder, target), join(HOME, '.cache'));
      await version(installation, { HOME });
      const used = await readdir(join(installation.folder, target), { recursive: true });
      assert.equal(used.length > 1, isUsed, `${used}`);
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

describe('NODE_COMPILE_CACHE', TOGETHER, () => {
  it('new folder, umask 0 → all folders and files are writable by their owner only', async (t) => {
    const { installation, NODE_COMPILE_CACHE } = await userCache(t);
    await version(installation, { NODE_COMPILE_CACHE });
    await assertUnshared(installation.folder);
  });

  it('others can write to it and to a folder in it → made private', async (t) => {
    const { installation, NODE_COMPILE_CACHE } = await userCache(t);
    await version(installation, { NODE_COMPILE_CACHE });
    const [compiled = ''] = await readdir(NODE_COMPILE_CACHE);
    for (const path of [NODE_COMPILE_CACHE, join(NODE_COMPILE_CACHE, compiled)]) await chmod(path, 0o777);
    await version(installation, { NODE_COMPILE_CACHE });
    await assertUnshared(installation.folder);
  });

  it('others can write to it, and it has other files → warns, and its mode stays', async (t) => {
    const { installation, NODE_COMPILE_CACHE } = await userCache(t);
    await mkdir(NODE_COMPILE_CACHE);
    await chmod(NODE_COMPILE_CACHE, 0o777);
    await writeFile(join(NODE_COMPILE_CACHE, 'notes.txt'), '');
    await version(installation, { NODE_COMPILE_CACHE }, /^plant-store: .*NODE_COMPILE_CACHE.*\n$/);
    assert.equal((await stat(NODE_COMPILE_CACHE)).mode & 0o777, 0o777);
  });

  it('sticky folder, as /tmp → its mode stays, the folder in it is private', async (t) => {
    const { installation, NODE_COMPILE_CACHE } = await userCache(t);
    await mkdir(NODE_COMPILE_CACHE);
    await chmod(NODE_COMPILE_CACHE, 0o1777);
    await version(installation, { NODE_COMPILE_CACHE });
    assert.equal((await stat(NODE_COMPILE_CACHE)).mode & 0o7777, 0o1777);
    await assertUnshared(NODE_COMPILE_CACHE);
  });

  it('another user owns it → warns', needs('root', process.getuid?.() === 0), async (t) => {
    const { installation, NODE_COMPILE_CACHE } = await userCache(t);
    await mkdir(NODE_COMPILE_CACHE);
    await chown(NODE_COMPILE_CACHE, 65_534, 65_534);
    await version(installation, { NODE_COMPILE_CACHE }, /^plant-store: .*NODE_COMPILE_CACHE.*\n$/);
  });
});

it('home folder with a default ACL for all → no created folder is writable by others', {
  ...needsProgram('python3'),
}, async (t) => {
  const { installation, HOME } = await homeInFolder(t);
  const { status } = spawnSync('python3', ['-c', SET_DEFAULT_ACL, HOME]);
  if (status !== 0) return t.skip(`${NEEDS}a file system with ACLs`);
  await version(installation, { HOME });
  await assertUnshared(HOME);
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

// cspell:ignore setxattr
/** Sets the default ACL of a folder: user, group and others have all permissions. The umask does not apply in it. */
const SET_DEFAULT_ACL = `import os, struct, sys
entries = b''.join(struct.pack('<HHI', tag, 7, 0xffffffff) for tag in (1, 4, 0x20))
os.setxattr(sys.argv[1], 'system.posix_acl_default', struct.pack('<I', 2) + entries)`;

/** Creates an installation, and returns the path of a folder in it that does not exist. */
async function userCache(t: TestContext) {
  const installation = await newInstallation(t);
  return { installation, NODE_COMPILE_CACHE: join(installation.folder, 'cache') };
}

/** Asserts that other users can write to nothing in a folder, and that it has compiled code. */
async function assertUnshared(folder: string): Promise<void> {
  const paths = await readdir(folder, { recursive: true });
  assert.ok(paths.length > 2, `no file in ${paths}`);
  for (const path of paths) {
    const { mode } = await stat(join(folder, path));
    assert.equal(mode & 0o022, 0, `${path}: ${mode.toString(8)}`);
  }
}

/** Creates a home folder two levels below the folder of an installation. */
async function homeInFolder(t: TestContext) {
  const installation = await newInstallation(t);
  const HOME = join(installation.folder, 'homes', 'alice');
  await mkdir(HOME, { recursive: true, mode: 0o700 });
  return { installation, HOME };
}

/** Runs the program with umask 0, and with the shared cache of the tests only if `env` names it. */
async function version(
  { runProcess }: Installation,
  env: Readonly<Record<string, string>> = {},
  output = /^$/,
): Promise<void> {
  const script = 'umask 000 && unset NODE_DISABLE_COMPILE_CACHE && exec "$@"';
  const wrap = (command: readonly string[]) => ['bash', '-c', script, 'bash', ...command];
  const { code, stderr } = await runProcess(['--version'], { env: { NODE_COMPILE_CACHE: '', ...env }, wrap });
  assert.equal(code, 0);
  assert.match(stderr, output);
}
