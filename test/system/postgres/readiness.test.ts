import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { CHECK_MS, SILENT_MS } from '../../../src/http/admin.ts';
import { postgres } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';
import { startService } from '../../support/service.ts';

/** A service on PostgreSQL behind a proxy, which counts the reads of its readiness check. */
async function startBehindProxy(t: TestContext, flags: Parameters<typeof startService>[2] = {}) {
  const url = new URL(await postgres.freshUrl(t));
  const reads = { count: 0 };
  const proxy = await startTcpProxy(t, Number(url.port), (bytes) => {
    if (bytes.includes('find-table-faults')) reads.count += 1;
  });
  url.host = `127.0.0.1:${proxy.port}`;
  const service = await startService(t, url.href, flags);
  const ready = () => fetch(`${service.adminUrl}/ready`);
  assert.equal((await ready()).status, 200);
  return { service, proxy, reads, ready };
}

test('each statement takes longer than /ready waits → 200, with one read at a time', async (t) => {
  const { service, proxy, reads, ready } = await startBehindProxy(t);
  const before = reads.count;
  void proxy.delay(2 * CHECK_MS, '');
  for (const round of [1, 2]) {
    const answers = await Promise.all(Array.from({ length: 10 }, ready));
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]), `round ${round}`);
  }
  assert.ok(reads.count <= before + 2, `${reads.count - before} reads for 20 requests`);
  const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
  assert.match(metrics, /^plant_store_ready\{check="store"\} 1$/m);
});

test('database is silent → /ready is 503 within SILENT_MS, and 200 when it answers again', async (t) => {
  const { service, proxy, ready } = await startBehindProxy(t);
  proxy.stall();
  const begun = performance.now();
  await until(async () => (await ready()).status === 503);
  assert.ok(performance.now() - begun > SILENT_MS - CHECK_MS);
  const failed = await ready();
  assert.equal(failed.headers.get('retry-after'), '1');
  const message = `not ready: store: no response within ${SILENT_MS} ms`;
  assert.deepEqual(await failed.json(), { error: 50300, message });
  assert.equal((await fetch(`${service.adminUrl}/live`)).status, 200);
  proxy.recover();
  await until(async () => (await ready()).status === 200);
});

test('database is silent for longer than a statement may take → /ready is 503 with the cause', async (t) => {
  const { proxy, ready } = await startBehindProxy(t, { databaseStatementTimeout: '100' });
  proxy.stall();
  await until(async () => (await ready()).status === 503);
  assert.match(await (await ready()).text(), /not ready: store: .*PostgreSQL/);
  proxy.recover();
});
