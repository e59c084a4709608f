import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { it } from 'node:test';
import { COMPLETE_COVERAGE } from '../../support/complete-coverage.ts';
import { withoutCoverage } from '../../support/without-coverage.ts';

it('a program that is killed while it writes its coverage → the coverage of all others is reported', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, 'program.mjs'), 'export const value = 1;\n');
  const file = join(folder, 'killed.test.mjs');
  await writeFile(
    file,
    `import { execFileSync } from 'node:child_process';
     import { writeFileSync } from 'node:fs';
     execFileSync(process.execPath, [${JSON.stringify(join(folder, 'program.mjs'))}]);
     writeFileSync(process.env.NODE_V8_COVERAGE + '/coverage-1-1700000000000-0.json', '{"result":[');`,
  );
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const flags = ['--test', '--experimental-test-coverage', '--test-reporter=spec'];
  const run = (...more: readonly string[]) => {
    const [command = '', ...args] = withoutCoverage([process.execPath, ...flags, ...more, file]);
    return spawnSync(command, args, { cwd: folder, env, encoding: 'utf8' });
  };

  const { status, stdout } = run(COMPLETE_COVERAGE);
  assert.equal(status, 0, stdout);
  assert.match(stdout, /program\.mjs +\| 100\.00/);
  assert.equal(run().status, 1, 'without it, Node reports no coverage');
});
