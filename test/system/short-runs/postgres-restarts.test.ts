import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crashUnderLoad } from '../../long/postgres-restarts.ts';
import { startPostgres } from '../../support/servers/postgres-server.ts';

test('PostgreSQL crashes under load → no acknowledged write lost, and every instance recovers', async (t) => {
  const server = await startPostgres(['fsync = off']);
  t.after(() => server.remove());
  const { balance, recoveries } = await crashUnderLoad(t, server, 3);
  assert.ok(balance.created >= 20 && balance.deleted >= 5, JSON.stringify(balance));
  assert.equal(recoveries.length, 3);
});
