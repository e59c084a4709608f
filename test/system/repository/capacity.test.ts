import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { freshFolder } from '../../support/engines.ts';
import { needsProgram } from '../../support/needs.ts';

const RUN = join(import.meta.dirname, '../../../bench/capacity/run.ts');

const run = async (...args: readonly string[]) =>
  (await promisify(execFile)(process.execPath, [RUN, ...args])).stdout;

describe('capacity', () => {
  test('measures this machine, and simulates with these costs', needsProgram('wrk'), async () => {
    const file = join(await freshFolder(), 'capacity.json');
    const quick = ['--seconds', '1', '--rounds', '1', '--warm-up', '1'];
    const measured = await run('--measure', '--costs', file, ...quick);
    for (const row of ['create, postgres', 'list, postgres', 'create, sqlite', 'list, sqlite'])
      assert.match(measured, new RegExp(`^ {2}${row} +\\d`, 'm'));

    for (const engine of ['postgres', 'sqlite']) {
      const args = ['--costs', file, '--engine', engine, '--rate', '100', '--simulated', '1'];
      const simulated = await run(...args);
      assert.match(simulated, /^Full load: [1-9][0-9,]* requests a second/m);
      assert.match(simulated, /^Saturated: \S/m);
      assert.match(simulated, /^Succeeded: .*\nFailed: none/m);
      assert.equal(await run(...args), simulated);
    }
  });

  test('without measured costs → error with the remedy', async () => {
    await assert.rejects(run('--costs', '/nowhere'), { code: 1, stderr: /^capacity: .*--measure\n$/ });
    const file = join(import.meta.dirname, '../../../package.json');
    await assert.rejects(run('--costs', file), { code: 1, stderr: /postgres is required.*--measure\n$/ });
  });
});
