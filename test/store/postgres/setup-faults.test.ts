import assert from 'node:assert/strict';
import { test } from 'node:test';
import { migrateStore, openStore } from '../../../src/store/open-engine.ts';
import type { Store } from '../../../src/store/store.ts';
import { codeOf } from '../../../src/thrown-errors.ts';
import { connections, postgres } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { openConnections } from '../../support/process-resources.ts';
import { freePort } from '../../support/servers/free-port.ts';
import { type PostgresServer, startPair, startPostgres } from '../../support/servers/postgres-server.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';

const ASYNCHRONOUS =
  'no synchronous standby: a failover may lose acknowledged writes; set synchronous_standby_names';

/** Opens the store. The array gets the faults that are reported, except settings of the server that are off. */
async function openReporting(
  url: string,
): Promise<{ readonly store: Store; readonly faults: readonly string[] }> {
  const faults: string[] = [];
  const store = await openStore(url, {
    now: Date.now,
    onFatal: assert.fail,
    connections: { ...connections, acquireTimeoutMs: 4_000 },
    onSetupFault: (fault) => {
      if (!fault.startsWith('f')) faults.push(fault);
    },
  });
  return { store, faults };
}

/** Returns the URL with more hosts behind its own. */
function withHosts(url: string, ...hosts: readonly string[]): string {
  const { host } = new URL(url);
  return url.replace(host, [host, ...hosts].join(','));
}

const hostOf = ({ port }: Pick<PostgresServer, 'port'>): string => `127.0.0.1:${port}`;

/** A host without a server. It is the last in a URL, so that its fault shows that the others were checked. */
async function nowhere(): Promise<string> {
  return `127.0.0.1:${await freePort()}`;
}

/** Asserts that opening the store reports these faults, and then that the `last` host has no server. */
async function assertFaults(url: string, last: string, expected: readonly string[]): Promise<void> {
  const { store, faults } = await openReporting(url);
  await until(() => faults.some((fault) => fault.startsWith(last)));
  await store.close();
  assert.deepEqual(faults.slice(0, -1), expected);
  assert.match(
    faults.at(-1) ?? '',
    /^\S+ cannot be used now, so a failover to it would fail: .*ECONNREFUSED .*correct the database URL\)$/,
  );
}

test('settings and tables that a crash may empty → each is reported', async (t) => {
  const server = await startPostgres(['fsync = off', 'full_page_writes = off']);
  t.after(() => server.remove());
  await migrateStore(server.url());
  await server.sql('ALTER TABLE idempotency_keys SET UNLOGGED');
  await server.sql('ALTER TABLE plants SET UNLOGGED');
  const faults: string[] = [];
  const onSetupFault = (fault: string): void => void faults.push(fault);
  const store = await openStore(server.url(), {
    now: Date.now,
    onFatal: assert.fail,
    connections,
    onSetupFault,
  });
  t.after(() => store.close());
  await until(() => faults.length === 2);
  assert.deepEqual(faults, [
    'fsync and full_page_writes off: a crash of the server may lose acknowledged writes, unless its storage prevents that; set it to on',
    'unlogged tables: idempotency_keys, plants; a crash of the server empties them; run ALTER TABLE … SET LOGGED for each',
  ]);
});

test('a standby is no fault, also one that accepts no connections; a host without a server is', async (t) => {
  const { primary, standby } = await startPair(t, { settings: ["synchronous_standby_names = 'standby'"] });
  const last = await nowhere();
  const url = withHosts(primary.url(), hostOf(standby), last);
  await assertFaults(url, last, []);
  await standby.sql('ALTER SYSTEM SET hot_standby = off');
  await standby.stop();
  // It never becomes ready.
  void standby.start().catch(() => undefined);
  await until(async () => {
    const error: unknown = await standby.sql('SELECT 1').catch((thrown: unknown) => thrown);
    return codeOf(error) === '57P03';
  });
  await assertFaults(url, last, []);
});

test('no synchronous standby, and another host that accepts writes → reported', async (t) => {
  const { primary, standby } = await startPair(t, { prepare: migrateStore });
  await standby.sql('SELECT pg_promote()');
  const [a, b, last] = [hostOf(primary), hostOf(standby), await nowhere()];
  await assertFaults(withHosts(primary.url(), b, last), last, [
    ASYNCHRONOUS,
    `${a} and ${b} both accept writes, but must be a primary and its standby; correct the database URL`,
  ]);
  await standby.sql("ALTER DATABASE postgres SET default_transaction_read_only = 'on'");
  await assertFaults(withHosts(primary.url(), b, last), last, [
    ASYNCHRONOUS,
    `${b} is read-only, but no standby; correct its setup, or the database URL`,
  ]);
});

test('two hosts are one server, or servers without timelines, as CockroachDB → no fault', async (t) => {
  const url = await postgres.freshUrl(t);
  const second = hostOf(await startTcpProxy(t, Number(new URL(url).port)));
  const last = await nowhere();
  await assertFaults(withHosts(url, second, last), last, [ASYNCHRONOUS]);

  const [one, other] = await Promise.all([startPostgres(['fsync = off']), startPostgres(['fsync = off'])]);
  for (const server of [one, other]) {
    t.after(() => server.remove());
    await server.sql('CREATE ROLE app LOGIN; GRANT ALL ON SCHEMA public TO app');
  }
  const ofApp = withHosts(one.url().replace('postgres@', 'app@'), hostOf(other), last);
  for (const server of [one, other]) {
    await server.sql('REVOKE EXECUTE ON FUNCTION pg_current_wal_lsn() FROM PUBLIC');
    await assertFaults(ofApp, last, [ASYNCHRONOUS]);
  }
});

test('the store closes while a host does not answer → nothing is reported of it', async (t) => {
  const url = await postgres.freshUrl(t);
  const silent = await startTcpProxy(t, Number(new URL(url).port));
  const held = silent.expect(/user\0/, 'hold');
  const { store, faults } = await openReporting(withHosts(url, hostOf(silent)));
  await held.finally(() => store.close());
  await until(async () => (await openConnections(silent.port)) === 0);
  assert.deepEqual(faults, [ASYNCHRONOUS]);
});
