import assert from 'node:assert/strict';
import { test } from 'node:test';
import { costlyBodies } from './support/data/costly-bodies.ts';
import { runWithoutCoverage } from './support/without-coverage.ts';

const MAX_CPU_MS = 3;

test(`a body of 64 KiB costs no more than ${MAX_CPU_MS} ms of CPU, whatever it contains`, async (t) => {
  for (const { name, body } of costlyBodies) {
    assert.ok(body.length > 64_000 && body.length <= 65_536, `${name}: ${body.length} bytes`);
  }
  const times: unknown = JSON.parse(await runWithoutCoverage('costly-body-times.ts', String(MAX_CPU_MS)));
  assert.ok(Array.isArray(times) && times.length === costlyBodies.length);
  for (const [index, { name }] of costlyBodies.entries()) {
    await t.test(name, (t) => {
      const ms = Number(times[index]);
      t.diagnostic(`${ms.toFixed(2)} ms`);
      assert.ok(ms <= MAX_CPU_MS, `${ms} ms`);
    });
  }
});
