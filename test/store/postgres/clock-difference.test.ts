import assert from 'node:assert/strict';
import { test } from 'node:test';
import { migrateStore, openStore } from '../../../src/store/open-engine.ts';
import { watchClocks } from '../../../src/store/postgres/host/clock-difference.ts';
import { connections, postgres } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';
import { failTest } from '../../support/store-setup.ts';

const HOUR_MS = 3_600_000;

test('the clock of the service is an hour ahead or behind → reported at the start', async (t) => {
  const url = await postgres.freshUrl(t);
  for (const aheadMs of [HOUR_MS, -HOUR_MS]) {
    const reports: number[] = [];
    const store = await openStore(url, {
      now: () => Date.now() + aheadMs,
      connections,
      onFatal: assert.fail,
      keyDeletion: { onFailure: failTest, onClockDifference: (ms) => void reports.push(ms) },
    });
    await until(() => reports.length > 0);
    await store.close();
    const [reported = 0] = reports;
    assert.ok(Math.abs(reported - aheadMs) < 5_000, `${reported} ms for ${aheadMs} ms`);
  }
});

test('the clock is set while the service waits for that of the server → no difference', async (t) => {
  const url = new URL(await postgres.freshUrl(t));
  await migrateStore(url.href);
  const proxy = await startTcpProxy(t, Number(url.port));
  const held = proxy.expect(/statement_timestamp.* AS now/s, 'hold');
  url.port = `${proxy.port}`;
  let aheadMs = 0;
  let reads = 0;
  const store = await openStore(url.href, {
    now: () => {
      reads += 1;
      return Date.now() + aheadMs;
    },
    connections,
    onFatal: assert.fail,
    keyDeletion: { onFailure: failTest, onClockDifference: (ms) => assert.fail(`${ms} ms`) },
  });
  await held;
  aheadMs = HOUR_MS;
  proxy.release();
  await until(() => reads === 2);
  await store.close();
});

test('a difference is reported once, and again only after the clocks were equal', () => {
  const reports: number[] = [];
  const compare = watchClocks((aheadMs) => void reports.push(aheadMs));
  compare(50_000, 50_100, 50_200);
  compare(100_000, 110_000, 110_100);
  assert.deepEqual(reports, []);
  compare(100_000, 110_001, 110_002);
  compare(100_000, 120_000, 120_001);
  assert.deepEqual(reports, [10_001]);
  compare(100_000, 99_999, 100_001);
  compare(100_000, 80_000, 81_000);
  assert.deepEqual(reports, [10_001, -19_000]);
});

test('a query that took an hour, as over a suspension of the machine → no difference', () => {
  const compare = watchClocks((aheadMs) => assert.fail(`${aheadMs} ms`));
  compare(100_000, 100_000 - HOUR_MS, 100_000);
  compare(100_000, 100_000, 100_000 + HOUR_MS);
});
