import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { connections, execute, postgres } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { openConnections } from '../../support/process-resources.ts';
import { freePort } from '../../support/servers/free-port.ts';
import { startPair } from '../../support/servers/postgres-server.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';

const OFF =
  'fsync and full_page_writes off: a crash of the server may lose acknowledged writes, unless its storage prevents that; set it to on';

const ASYNCHRONOUS =
  'no synchronous standby: a failover may lose acknowledged writes; set synchronous_standby_names';

/** Opens the store. The array gets the faults that are reported. */
async function openReporting(t: TestContext, url: string): Promise<readonly string[]> {
  const faults: string[] = [];
  const store = await openStore(url, {
    now: Date.now,
    onFatal: assert.fail,
    connections: { ...connections, acquireTimeoutMs: 4_000 },
    onSetupFault: (fault) => faults.push(fault),
  });
  t.after(() => store.close());
  return faults;
}

/** Returns the URL with more hosts behind its own. */
function withHosts(url: string, ...hosts: readonly string[]): string {
  const { host } = new URL(url);
  return url.replace(host, [host, ...hosts].join(','));
}

test('settings and tables that a crash may empty → each is reported', async (t) => {
  const url = await postgres.freshUrl(t);
  const store = await openStore(url, { now: Date.now, onFatal: assert.fail, connections });
  await store.close();
  await execute(url, 'ALTER TABLE idempotency_keys SET UNLOGGED');
  await execute(url, 'ALTER TABLE plants SET UNLOGGED');
  const faults = await openReporting(t, url);
  await until(() => faults.length === 2);
  assert.deepEqual(faults, [
    OFF,
    'unlogged tables: idempotency_keys, plants; a crash of the server empties them; run ALTER TABLE … SET LOGGED for each',
  ]);
});

test('a standby is no fault, a host without a server is', async (t) => {
  const { primary, standby } = await startPair(t, { settings: ["synchronous_standby_names = 'standby'"] });
  const nowhere = `127.0.0.1:${await freePort()}`;
  const faults = await openReporting(t, withHosts(primary.url(), `127.0.0.1:${standby.port}`, nowhere));
  await until(() => faults.length > 0);
  const [fault = '', ...others] = faults;
  assert.deepEqual(others, []);
  assert.match(
    fault,
    new RegExp(`^${nowhere} cannot be used, so there is no failover to it: .*ECONNREFUSED`),
  );
});

test('no synchronous standby, and a second host that accepts writes → reported', async (t) => {
  const url = await postgres.freshUrl(t);
  const { host, port } = new URL(url);
  const second = await startTcpProxy(t, Number(port));
  const faults = await openReporting(t, withHosts(url, `127.0.0.1:${second.port}`));
  await until(() => faults.length === 3);
  assert.deepEqual(faults, [
    OFF,
    ASYNCHRONOUS,
    `${host} and 127.0.0.1:${second.port} both accept writes, but must be a primary and its standby; correct the database URL`,
  ]);
});

test('the store closes while a host does not answer → nothing is reported of it', async (t) => {
  const url = await postgres.freshUrl(t);
  const silent = await startTcpProxy(t, Number(new URL(url).port));
  const held = silent.expect(/user\0/, 'hold');
  const faults: string[] = [];
  const store = await openStore(withHosts(url, `127.0.0.1:${silent.port}`), {
    now: Date.now,
    onFatal: assert.fail,
    connections: { ...connections, acquireTimeoutMs: 60_000 },
    onSetupFault: (fault) => faults.push(fault),
  });
  await held;
  await store.close();
  await until(async () => (await openConnections(silent.port)) === 0);
  assert.deepEqual(faults, [OFF, ASYNCHRONOUS]);
});
