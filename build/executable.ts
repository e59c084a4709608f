import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { inject } from 'postject';
import { bundle, packagedFiles, renderThirdParty } from './bundle.ts';

/**
 * Builds one file that runs without Node: the Node that executes this script, the program, and its files as assets
 * (https://nodejs.org/api/single-executable-applications.html). Writes the licences next to it. On Linux postject prints
 * harmless warnings about section names.
 *
 *     npm run build:executable -- --output plant-store
 */

const { values } = parseArgs({
  options: {
    output: {
      type: 'string',
      default: process.platform === 'win32' ? 'dist/plant-store.exe' : 'dist/plant-store',
    },
  },
});
const output = resolve(values.output);
process.chdir(join(import.meta.dirname, '..'));
const folder = mkdtempSync(join(tmpdir(), 'plant-store-executable-'));
try {
  const blob = join(folder, 'blob');
  const thread = 'store/sqlite/writer-thread';
  const files = await bundle(['src/cli/executable.ts', `src/${thread}.ts`], folder, {
    format: 'cjs',
  });
  const assets = (await packagedFiles()).map((file) => [file, resolve('src', file)]);
  const config = {
    // Relative, since Node stores this path in the blob.
    main: 'cli/executable.js',
    output: blob,
    disableExperimentalSEAWarning: true,
    useCodeCache: true,
    // Node listens for SIGUSR1 before the program can ignore it.
    execArgv: ['--disable-sigusr1'],
    assets: { ...Object.fromEntries(assets), [`${thread}.js`]: join(folder, `${thread}.js`) },
  };
  const configFile = join(folder, 'config.json');
  writeFileSync(configFile, JSON.stringify(config));
  // With a fixed seed, the code cache has the same bytes in each build. It does not fix the hash seed of the program.
  const flags = ['--random-seed=1', '--experimental-sea-config', configFile];
  execFileSync(process.execPath, flags, { cwd: folder, stdio: 'inherit' });
  mkdirSync(dirname(output), { recursive: true });
  const made = `${output}.partial`;
  copyFileSync(process.execPath, made);
  // macOS runs no program whose signature is of other content.
  if (process.platform === 'darwin') execFileSync('codesign', ['--remove-signature', made]);
  await inject(made, 'NODE_SEA_BLOB', readFileSync(blob), {
    sentinelFuse: 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2',
    machoSegmentName: 'NODE_SEA',
  });
  if (process.platform === 'darwin') execFileSync('codesign', ['--force', '--sign', '-', made]);
  // A rename, since an executable that runs cannot be written.
  renameSync(made, output);
  writeFileSync(
    `${output}.licences.txt`,
    `${readNodeLicence()}\n${'-'.repeat(80)}\n\n${renderThirdParty(files)}`,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}

// Copied by build/node-licence.ts, when `npm ci` installs Node.
function readNodeLicence(): string {
  return `Node.js ${process.versions.node}\n\n${readFileSync('node_modules/node/LICENSE', 'utf8')}`;
}
