import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { publint } from 'publint';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const run = promisify(execFile);

/** Runs `npm pack` for a package, given as a folder or a workspace. Resolves to the path of the tarball. */
export async function pack(folder: string, ...which: readonly string[]): Promise<string> {
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', folder, ...which], {
    cwd: ROOT,
  });
  const name = /"filename": "([^"]+)"/.exec(stdout)?.[1];
  if (name === undefined) throw new Error(stdout);
  return join(folder, name);
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

/** Lists the files and folders at the root of the package in a tarball. */
export async function contentsOf(tarball: string): Promise<readonly string[]> {
  const { stdout } = await run('tar', ['--list', '--file', tarball]);
  const names = stdout
    .trim()
    .split('\n')
    .map((path) => path.split('/')[1] ?? '');
  return [...new Set(names)].sort();
}
