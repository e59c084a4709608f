import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import type { Figures } from '../bench/report.ts';
import { freshFolder } from './engines.ts';

const RUN = join(import.meta.dirname, '../bench/run.ts');

interface Written {
  readonly workloads: readonly { readonly workload: string; readonly subjects: readonly Figures[] }[];
}

const bench = (...args: readonly string[]) => promisify(execFile)(process.execPath, [RUN, ...args]);

test('bench measures the chosen part for us and the bare handler, and writes it as a table and as JSON', async () => {
  const file = join(await freshFolder(), 'bench.json');
  const { stdout } = await bench(
    ...['--only', 'create', '--rounds', '1', '--seconds', '1', '--warm-up', '0', '--json', file],
  );
  assert.match(stdout, /^create, ids in order\n {2}plant-store +[0-9,]+ .*\n {2}bare node:http +[0-9,]+ /m);
  assert.match(stdout, /^ {2}÷ bare node:http +[0-9]\.[0-9]{2} \(/m);
  assert.doesNotMatch(stdout, /^(?:list|delete)/m);

  const { workloads }: Written = JSON.parse(await readFile(file, 'utf8'));
  assert.deepEqual(
    workloads.map(({ workload }) => workload),
    ['create, ids in order', 'create, random ids'],
  );
  for (const { subjects } of workloads) {
    for (const { perSecond, p50Ms, p99Ms, failures } of subjects) {
      assert.ok(perSecond > 0 && p50Ms > 0 && p99Ms >= p50Ms);
      assert.equal(failures, 0);
    }
  }
});

test('bench refuses an option it cannot follow and says why', async () => {
  await assert.rejects(bench('--only', 'create,water'), {
    code: 1,
    stderr: /^bench: --only takes some of create,list,delete, not water/,
  });
});
