import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { onceAMinute } from '../../src/observability/once-a-minute.ts';

function startLog(t: TestContext) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const lines: (readonly [string, number])[] = [];
  return { ...onceAMinute((...line) => lines.push(line)), logged: () => [...lines] };
}

test('traces cannot be sent for minutes → one line a minute, with the spans lost since the last one', (t) => {
  const { report, logged } = startLog(t);
  for (let second = 0; second < 180; second += 1) {
    report(`problem ${second}`, 10);
    t.mock.timers.tick(1_000);
  }
  assert.deepEqual(logged(), [
    ['problem 0', 10],
    ['problem 59', 590],
    ['problem 119', 600],
    ['problem 179', 600],
  ]);
});

test('traces cannot be sent for less than a minute → the other lost spans are logged at its end', (t) => {
  const { report, logged } = startLog(t);
  for (let failures = 0; failures < 12; failures += 1) {
    report('first outage', 512);
    t.mock.timers.tick(5_000);
  }
  const firstOutage = [
    ['first outage', 512],
    ['first outage', 5_632],
  ];
  assert.deepEqual(logged(), firstOutage);
  t.mock.timers.tick(86_400_000);
  assert.deepEqual(logged(), firstOutage);
  report('second outage', 1);
  assert.deepEqual(logged(), [...firstOutage, ['second outage', 1]]);
  t.mock.timers.tick(86_400_000);
  assert.equal(logged().length, 3);
});

test('stop within the minute → the other lost spans are logged once', (t) => {
  const { report, close, logged } = startLog(t);
  report('outage', 512);
  report('outage', 512);
  report('another', 1);
  close();
  const all = [
    ['outage', 512],
    ['another', 513],
  ];
  assert.deepEqual(logged(), all);
  t.mock.timers.tick(60_000);
  close();
  assert.deepEqual(logged(), all);
});
