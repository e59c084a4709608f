import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import manifest from '../package.json' with { type: 'json' };
import { bundle, packagedFiles, renderThirdParty } from './bundle.ts';

/** Builds the published package in `dist/package`: the program with everything that it imports. */

const TO = 'dist/package';

process.chdir(join(import.meta.dirname, '..'));
rmSync(TO, { recursive: true, force: true });
mkdirSync(TO, { recursive: true });
const entryPoints = ['src/cli/main.ts', 'src/store/sqlite/writer-thread.ts'];
const files = await bundle(entryPoints, join(TO, 'lib'), { format: 'esm' });
for (const file of await packagedFiles()) cpSync(join('src', file), join(TO, 'lib', file));
for (const file of ['bin', 'LICENSE', 'CHANGELOG.md']) cpSync(file, join(TO, file), { recursive: true });
cpSync('build/package-readme.md', join(TO, 'README.md'));
writeFileSync(join(TO, 'THIRD-PARTY.txt'), renderThirdParty(files));

const { name, version, description, license, type, bin, engines } = manifest;
const exports = { './package.json': './package.json' };
const published = { name, version, description, license, type, bin, exports, engines };
writeFileSync(join(TO, 'package.json'), `${JSON.stringify(published, null, 2)}\n`);
