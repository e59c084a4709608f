import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { describeHolding, SOAK_LIMITS, soak, soakFaults } from '../../long/soak.ts';
import { MEBIBYTE } from '../../support/process-resources.ts';

const SECONDS = 5;

/** Warm-up: a new service still compiles code and fills its caches. */
const GROWING = { ...SOAK_LIMITS, memory: 96 * MEBIBYTE, heap: 16 * MEBIBYTE, files: 12 };

describe('mixed load', () => {
  it('expected responses, and no more resources at the end than at the start', async (t) => {
    const summary = await soak({
      minutes: SECONDS / 60,
      connections: 8,
      rate: 400,
      seed: 1,
      report: () => undefined,
    });
    t.diagnostic(`first sixth: ${describeHolding(summary.first)}`);
    t.diagnostic(`last sixth: ${describeHolding(summary.last)}`);
    assert.deepEqual(soakFaults(summary, GROWING), []);
    assert.ok(summary.requests > SECONDS * 10, `only ${summary.requests} requests were made`);
  });

  it('the limits of the verdict detect each kind of leak', () => {
    const first = { memory: 100 * MEBIBYTE, heap: 30 * MEBIBYTE, files: 40, log: 4 * MEBIBYTE };
    const grown = { memory: 150 * MEBIBYTE, heap: 35 * MEBIBYTE, files: 45, log: 7 * MEBIBYTE };
    assert.deepEqual(soakFaults({ requests: 1, first, last: first, surprises: [] }), []);
    for (const what of ['memory', 'heap', 'files', 'log'] as const) {
      const last = { ...first, [what]: grown[what] };
      const [fault, ...others] = soakFaults({ requests: 1, first, last, surprises: [] });
      assert.match(fault ?? '', new RegExp(`^${what}: `));
      assert.deepEqual(others, []);
    }
  });
});
