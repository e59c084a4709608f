import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { NO_COVERAGE } from '../support/needs.ts';

const PROGRAM = join(import.meta.dirname, '../support/next-tick-cost.ts');

/** Max processes in which the slow calls are looked for. */
const CONTROLS = 5;

async function costOf(mode: 'kept' | 'not kept'): Promise<number> {
  const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', PROGRAM, mode]);
  return Number(stdout);
}

test(
  'full garbage collections → process.nextTick stays fast; without keepNextTickFast it does not',
  NO_COVERAGE,
  async () => {
    const kept = await costOf('kept');
    let control = 0;
    // In rare processes each collection finds such an object in use, for example when the machine is busy.
    for (let started = 0; started < CONTROLS && control <= 2 * kept; started += 1)
      control = Math.max(control, await costOf('not kept'));
    assert.ok(kept > 0 && kept < control / 2, `${kept} µs per call, ${control} µs without`);
  },
);
