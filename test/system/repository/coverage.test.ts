import assert from 'node:assert/strict';
import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { it, type TestContext } from 'node:test';
import { COMPLETE_COVERAGE } from '../../support/complete-coverage.ts';
import { withoutCoverage } from '../../support/without-coverage.ts';

it('a program that is killed while it writes its coverage → the coverage of all others is reported', async (t) => {
  const folder = await createFolder(t);
  await writeFile(join(folder, 'program.mjs'), 'export const value = 1;\n');
  const file = join(folder, 'killed.test.mjs');
  await writeFile(
    file,
    `import { execFileSync } from 'node:child_process';
     import { writeFileSync } from 'node:fs';
     execFileSync(process.execPath, [${JSON.stringify(join(folder, 'program.mjs'))}]);
     writeFileSync(process.env.NODE_V8_COVERAGE + '/coverage-1-1700000000000-0.json', '{"result":[');`,
  );

  const { status, stdout } = measureCoverage(file, '--test-reporter=spec', COMPLETE_COVERAGE);
  assert.equal(status, 0, stdout);
  assert.match(stdout, /program\.mjs +\| 100\.00/);
  assert.equal(
    measureCoverage(file, '--test-reporter=spec').status,
    1,
    'without it, Node reports no coverage',
  );
});

it('the coverage of a folder includes the folders in it', async (t) => {
  const folder = await createFolder(t);
  await mkdir(join(folder, 'outer/inner'), { recursive: true });
  await writeFile(
    join(folder, 'outer/half.mjs'),
    'if (process.argv.length === 0) {\n  throw 1;\n}\n1;\n2;\n3;\n',
  );
  await writeFile(join(folder, 'outer/inner/full.mjs'), '1;\n2;\n3;\n4;\n');
  const file = join(folder, 'imports.test.mjs');
  await writeFile(file, "import './outer/half.mjs';\nimport './outer/inner/full.mjs';\n");

  const { stdout } = measureCoverage(file, `--test-reporter=${SUMMARY}`);
  assert.match(stdout, /^outer +80\.00 %/m);
  assert.match(stdout, /^outer\/inner +100\.00 %/m);
});

const SUMMARY = join(import.meta.dirname, '../../support/summary.ts');

async function createFolder(t: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

function measureCoverage(file: string, ...flags: readonly string[]): SpawnSyncReturns<string> {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const all = ['--test', '--experimental-test-coverage', ...flags, file];
  const [command = '', ...args] = withoutCoverage([process.execPath, ...all]);
  return spawnSync(command, args, { cwd: dirname(file), env, encoding: 'utf8' });
}
