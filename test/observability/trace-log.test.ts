import assert from 'node:assert/strict';
import { test } from 'node:test';
import { logTo } from '../../src/observability/log.ts';
import { logTraces } from '../../src/observability/trace-log.ts';

test('traces cannot be sent for minutes → one line a minute, with the spans lost since the last one', () => {
  const lines: string[] = [];
  let now = 0;
  const report = logTraces(logTo({ write: (line) => void lines.push(line) }, 'info').log, () => now);
  for (; now < 180_000; now += 1_000) report(`problem ${now}`, 10);
  const logged = lines.map((line): Record<string, unknown> => JSON.parse(line));
  assert.deepEqual(
    logged.map(({ problem, spans }) => [problem, spans]),
    [
      ['problem 0', 10],
      ['problem 60000', 600],
      ['problem 120000', 600],
    ],
  );
});
