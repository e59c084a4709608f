import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { freshFolder } from '../support/engines.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Declares the names that fragments use. */
const PRELUDE = `
  import { Type } from '${ROOT}src/schema.ts';
  declare const row: Readonly<Record<string, unknown>>;
`;

test('CONTRIBUTING: every TypeScript sample compiles', async () => {
  const text = await readFile(join(ROOT, 'CONTRIBUTING.md'), 'utf8');
  const samples = [...text.matchAll(/^( *)```ts\n(.*?)\n\1```$/gms)].map(([, , code = '']) => code);
  assert.ok(samples.length > 0);
  const folder = await freshFolder();
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const { compilerOptions } = JSON.parse(await readFile(join(ROOT, 'tsconfig.json'), 'utf8'));
  const options = { ...compilerOptions, noUnusedLocals: false, noUnusedParameters: false };
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: options }));
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  for (const [index, sample] of samples.entries()) {
    await writeFile(join(folder, `sample-${index}.ts`), moduleOf(sample));
  }
  const tsc = join(ROOT, 'node_modules/.bin/tsc');
  const errors = await promisify(execFile)(tsc, ['--project', folder]).then(
    ({ stdout }) => stdout,
    (error: unknown) => String(Reflect.get(Object(error), 'stdout')),
  );
  assert.equal(errors, '');
});

/** A module with its imports, which are relative to src/http/plants, or the members of an object. */
function moduleOf(sample: string): string {
  if (/^\s*\w+: /.test(sample)) return `${PRELUDE}export const sample = {\n${sample}\n};\n`;
  return sample.replaceAll("'../../", `'${ROOT}src/`).replaceAll("'../", `'${ROOT}src/http/`);
}
