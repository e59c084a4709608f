import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Builds `client/dist`, the content of the client's package: ES modules, and the same as CommonJS in `cjs`. */

const COMMON_JS = [
  '--module',
  'commonjs',
  '--moduleResolution',
  'bundler',
  '--verbatimModuleSyntax',
  'false',
];

process.chdir(join(import.meta.dirname, '..', 'client'));
rmSync('dist', { recursive: true, force: true });
for (const flags of [[], [...COMMON_JS, '--outDir', 'dist/cjs']]) {
  execFileSync('tsc', ['--noEmit', 'false', ...flags], { stdio: 'inherit' });
}
// tsc rewrites the extensions of imports in scripts, but not in declarations.
for (const file of globSync('dist/**/*.d.ts')) {
  writeFileSync(file, readFileSync(file, 'utf8').replaceAll(/( from '\.\/[a-z-]+)\.ts'/g, "$1.js'"));
}
writeFileSync('dist/cjs/package.json', '{ "type": "commonjs" }\n');
