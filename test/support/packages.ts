import { execFile } from 'node:child_process';
import { cp, readFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { publint } from 'publint';
import { freshFolder } from './engines.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const run = promisify(execFile);

/**
 * Runs `npm pack` for the package of a folder. Puts the tarball into another folder, and resolves to its path.
 */
export async function pack(to: string, from: string): Promise<string> {
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', to], { cwd: from });
  const name = /"filename": "([^"]+)"/.exec(stdout)?.[1];
  if (name === undefined) throw new Error(stdout);
  return join(to, name);
}

/** Packs the client in a copy: two test files that build it in the same folder would delete each other's files. */
export async function packClient(to: string): Promise<string> {
  const copy = await freshFolder();
  for (const part of ['client', 'build/client.ts', 'tsconfig.json'])
    await cp(join(ROOT, part), join(copy, part), { recursive: true });
  await symlink(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  return pack(to, join(copy, 'client'));
}

/** Installs packages into a folder. Resolves to the warnings of npm. */
export async function npmInstall(folder: string, ...packages: readonly string[]): Promise<string> {
  const flags = ['--loglevel=warn', '--prefer-offline', '--no-audit', '--no-fund'];
  return (await run('npm', ['install', ...flags, ...packages], { cwd: folder })).stderr;
}

/** Returns the problems that publint finds in a package tarball. */
export async function publintMessages(tarball: string): Promise<readonly unknown[]> {
  const bytes = await readFile(tarball);
  const copy = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  return (await publint({ pack: { tarball: copy }, strict: true })).messages;
}

/** Returns the relative links of the README in a package tarball whose target is not in the tarball. */
export async function deadLinks(tarball: string): Promise<readonly string[]> {
  const { stdout: names } = await run('tar', ['--list', '--file', tarball]);
  const { stdout: readme } = await run('tar', [
    '--extract',
    '--to-stdout',
    '--file',
    tarball,
    'package/README.md',
  ]);
  const links = readme.matchAll(/(?:\]\(|(?:href|src|srcset)=")(?![a-z]+:|#)([^)"#\s]+)/g);
  return [...links].map(([, link = '']) => link).filter((link) => !names.includes(`package/${link}`));
}

/** Lists the files and folders at the root of the package in a tarball. */
export async function contentsOf(tarball: string): Promise<readonly string[]> {
  const { stdout } = await run('tar', ['--list', '--file', tarball]);
  const names = stdout
    .trim()
    .split('\n')
    .map((path) => path.split('/')[1] ?? '');
  return [...new Set(names)].sort();
}
