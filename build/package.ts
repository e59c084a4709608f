import { execFileSync } from 'node:child_process';
import { cpSync, globSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';

/** Builds `dist` for the published package: the compiled sources, and the files that they read. */

const [from, to] = ['src', 'dist'];

process.chdir(join(import.meta.dirname, '..'));
rmSync(to, { recursive: true, force: true });
execFileSync('tsc', ['--project', 'tsconfig.build.json'], { stdio: 'inherit' });
for (const { name, parentPath } of globSync(`${from}/**`, { withFileTypes: true }).filter((one) =>
  one.isFile(),
)) {
  const file = join(parentPath, name);
  if (!file.endsWith('.ts')) cpSync(file, join(to, relative(from, file)));
}
