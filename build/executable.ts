import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { bundle, packagedFiles, renderThirdParty } from './bundle.ts';

/**
 * Builds one file that runs without Node: the Node that executes this script, the program, and its files as assets
 * (https://nodejs.org/api/single-executable-applications.html). Writes the licences next to it.
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
  const thread = 'store/sqlite/writer-thread';
  const files = await bundle(['src/cli/executable.ts', `src/${thread}.ts`], folder, {
    splitting: false,
    minify: true,
  });
  const assets = (await packagedFiles()).map((file) => [file, resolve('src', file)]);
  const config = {
    main: join(folder, 'cli/executable.js'),
    mainFormat: 'module',
    output,
    disableExperimentalSEAWarning: true,
    useCodeCache: true,
    // Node listens for SIGUSR1 before the program can ignore it.
    execArgv: ['--disable-sigusr1'],
    assets: { ...Object.fromEntries(assets), [`${thread}.js`]: join(folder, `${thread}.js`) },
  };
  const configFile = join(folder, 'config.json');
  writeFileSync(configFile, JSON.stringify(config));
  mkdirSync(dirname(output), { recursive: true });
  execFileSync(process.execPath, ['--build-sea', configFile], { stdio: 'inherit' });
  // macOS runs no program whose signature is of other content.
  if (process.platform === 'darwin') execFileSync('codesign', ['--force', '--sign', '-', output]);
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
