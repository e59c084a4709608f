import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runWithDiskError } from '../../long/disk/disk-errors.ts';
import { cutPower } from '../../long/disk/power-cut.ts';
import { createRandom } from '../../support/data/seeded-random.ts';
import { canRun, needs } from '../../support/needs.ts';
import { TOGETHER } from '../../support/program.ts';

const NEEDS_STRACE = needs('strace', canRun('strace', '-o', '/dev/null', 'true'));

describe('power cut', { ...NEEDS_STRACE, ...TOGETHER }, () => {
  it('anywhere → the store is sound and has every acknowledged write', async (t) => {
    const report = (line: string): void => t.diagnostic(line);
    const summary = await cutPower({ cuts: 25, writes: 300, seed: 5, blind: false, report });
    assert.ok(summary.acknowledged === 300 && summary.inCheckpoints > 0 && summary.inTheMaking > 0);
    assert.equal(summary.unsound, 0);
  });

  it('of a disk that ignores syncs → the program finds the losses', async () => {
    const found: string[] = [];
    const report = (line: string): void => void found.push(line);
    const summary = await cutPower({ cuts: 8, writes: 300, seed: 5, blind: true, report });
    assert.ok(summary.unsound >= 2, found.join('\n'));
  });
});

describe('error of the disk', { ...NEEDS_STRACE, ...TOGETHER }, () => {
  for (const { name, expected, ...diskError } of [
    { name: 'write of a new store', call: 'pwrite64', position: 5, isNew: true, expected: 'did not start' },
    { name: 'sync of a new store', call: 'fsync', position: 4, isNew: true, expected: 'did not start' },
    { name: 'write of the log', call: 'pwrite64', position: 30, isNew: false, expected: 'went on' },
    { name: 'sync of the log', call: 'fsync', position: 12, isNew: false, expected: 'exited' },
  ] as const) {
    for (const lasts of [false, true]) {
      it(`${name} fails ${lasts ? 'from then on' : 'once'} → ${expected}; nothing acknowledged is lost`, async () => {
        const error = { ...diskError, error: 'EIO', lasts } as const;
        const { struck, ending, faults } = await runWithDiskError(error, createRandom(7));
        assert.deepEqual({ struck, ending, faults }, { struck: true, ending: expected, faults: [] });
      });
    }
  }
});
