import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { migrateStore } from '../../../src/store/open-engine.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import type { TimelineRegression } from '../../../src/store/store.ts';
import { connections as options } from '../../support/engines.ts';
import { type PostgresServer, startPostgres } from '../../support/servers/postgres-server.ts';
import { bearer, startService } from '../../support/service.ts';

async function start(t: TestContext): Promise<PostgresServer> {
  const server = await startPostgres(['fsync = off']);
  t.after(() => server.remove());
  await migrateStore(server.url());
  return server;
}

/** Starts a server as a standby and promotes it, which begins the next timeline. */
async function promote(server: PostgresServer): Promise<void> {
  await server.stop();
  await writeFile(join(server.folder, 'standby.signal'), '');
  await server.start();
  await server.sql('SELECT pg_promote()');
}

test('a failover to a primary on an older timeline is logged as an error and counted', async (t) => {
  const [second, first] = await Promise.all([start(t), start(t)]);
  await promote(second);
  const url = `postgres://postgres@127.0.0.1:${second.port},127.0.0.1:${first.port}/postgres`;
  const service = await startService(t, url);
  const list = async (token: string) =>
    (await fetch(`${service.url}/plants`, { headers: bearer(token) })).status;
  const regressions = async () =>
    /^plant_store_timeline_regressions_total (\d+)$/m.exec(
      await (await fetch(`${service.adminUrl}/metrics`)).text(),
    )?.[1];
  assert.equal(await list(await service.token()), 200);
  assert.equal(await regressions(), '0');

  await second.stop('immediate');
  // The first write may still meet the connections to the server that stopped.
  const token = await service.token().catch(() => service.token());
  assert.equal(await list(token), 200);
  assert.equal(await regressions(), '1');
  const lines = service.logLines.filter((line) => line.includes('lower timeline'));
  assert.equal(lines.length, 1);
  const { level, timeline, highest }: Record<string, unknown> = JSON.parse(lines.join(''));
  assert.deepEqual({ level, timeline, highest }, { level: 50, timeline: 1, highest: 2 });
});

test('failover to a newer timeline, or sessions on one timeline → no report, even without privileges', async (t) => {
  const server = await start(t);
  await server.sql('CREATE ROLE app LOGIN');
  const reported: TimelineRegression[] = [];
  const url = server.url().replace('postgres@', 'app@');
  const connections = new Connections(url, options, {
    onTimelineRegression: (regression) => void reported.push(regression),
  });
  t.after(() => connections.close());
  const ask = () => connections.query({ text: 'SELECT 1 AS one' });
  await Promise.all([ask(), ask(), ask()]);
  await promote(server);
  await ask().catch(ask);
  await Promise.all([ask(), ask(), ask()]);
  assert.deepEqual([reported, connections.timelineRegressions()], [[], 0]);
});

test('a server without timeline functions works', async (t) => {
  const server = await start(t);
  await server.sql('CREATE ROLE app LOGIN');
  await server.sql('REVOKE EXECUTE ON FUNCTION pg_current_wal_lsn() FROM PUBLIC');
  const connections = new Connections(server.url().replace('postgres@', 'app@'), options, {
    onTimelineRegression: () => assert.fail('a regression was reported'),
  });
  t.after(() => connections.close());
  const [row] = await connections.query({ text: 'SELECT 1 AS one' });
  assert.equal(row?.one, 1);
});
