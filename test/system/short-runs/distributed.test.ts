import assert from 'node:assert/strict';
import { test } from 'node:test';
import { databaseKindOf } from '../../long/distributed/database-kind.ts';
import { checkDatabase } from '../../long/distributed/distributed.ts';
import { Verdicts } from '../../long/distributed/verdicts.ts';

test('a PostgreSQL without Citus → what applies is checked and finds planted faults; the rest is not run', async (t) => {
  const url = process.env.TEST_DATABASE_URL;
  assert.ok(url !== undefined);
  const lines: string[] = [];
  const print = (line: string): void => void lines.push(line);
  const verdicts = new Verdicts(print);
  const target = { kind: 'postgresql', url, servers: [], processes: {} } as const;
  await checkDatabase(t, verdicts, target, { seconds: 1, kills: 0, moves: 0, print });
  assert.equal(verdicts.faults, 0, lines.join('\n'));
  for (const line of [
    /^PostgreSQL \d+/,
    /^ok {7}linearizable.* observations by clients of 8 owners/,
    /^ok {7}control: a list .*: found: /,
    /^ok {7}control: an acknowledged plant .*: found: /,
    /^ok {7}throughput: \d+ creations/,
    /^not run {2}shards moved: needs citus/,
    /^not run {2}workers killed: needs citus/,
  ])
    assert.ok(
      lines.some((one) => line.test(one)),
      `${line}\n${lines.join('\n')}`,
    );
});

test('a check that rejects is a fault; so is a control whose planted fault is not found', async () => {
  const lines: string[] = [];
  const verdicts = new Verdicts((line) => void lines.push(line));
  const reject = () => Promise.reject(new Error('2 plants are lost'));
  await verdicts.check('kept', async () => 'all');
  await verdicts.check('lost', reject);
  await verdicts.control('seen', /\d plants/, reject);
  await verdicts.control('mistaken', /another/, reject);
  await verdicts.control('blind', /plants/, async () => undefined);
  assert.equal(verdicts.faults, 3);
  assert.deepEqual(
    lines.map((line) => line.split(':').slice(0, 2).join(':')),
    [
      'ok       kept: all',
      'FAULT    lost: 2 plants are lost',
      'ok       seen: found',
      'FAULT    mistaken: the planted fault was not found',
      'FAULT    blind: the planted fault was not found',
    ],
  );
});

for (const [version, kind] of [
  ['PostgreSQL 18.4 on x86_64-pc-linux-gnu, compiled by gcc', 'postgresql'],
  ['CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, built 2025/05/28)', 'cockroachdb'],
  ['PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu', 'yugabytedb'],
] as const)
  test(`version ${version} → ${kind}`, () => assert.equal(databaseKindOf(version), kind));
