import { mkdir, rm, symlink } from 'node:fs/promises';
import { dirname, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import manifest from '../package.json' with { type: 'json' };

/**
 * Links the command of this clone in node_modules/.bin, where npx looks first. npx caches its own link to the command
 * and does not update it when the file moves.
 */

const ROOT = new URL('../', import.meta.url);

for (const [name, file] of Object.entries(manifest.bin)) {
  const link = fileURLToPath(new URL(`node_modules/.bin/${name}`, ROOT));
  await mkdir(dirname(link), { recursive: true });
  await rm(link, { force: true });
  await symlink(relative(dirname(link), fileURLToPath(new URL(file, ROOT))), link);
}
