import assert from 'node:assert/strict';
import { test } from 'node:test';
import { migrateStore, openStore } from '../src/store/open.ts';
import { Connections } from '../src/store/postgres-connections.ts';
import { StoreUnavailable } from '../src/store.ts';
import { connections as options } from './engines.ts';
import { createStandby, startPostgres } from './postgres-server.ts';

test('a standby, which may lack what was acknowledged, is never read, also when it is the only host', async (t) => {
  const primary = await startPostgres(['fsync = off']);
  t.after(() => primary.remove());
  await migrateStore(primary.url());
  await primary.stop();
  const standby = await createStandby(primary, ['fsync = off']);
  t.after(() => standby.remove());
  await standby.start();

  await assert.rejects(
    openStore(standby.url(), { now: Date.now, connections: options, onFatal: assert.fail }),
    {
      name: 'StoreNotOpened',
      message: /the host is not the primary$/,
    },
  );
  // As a service does whose host name leads elsewhere after a while.
  const connections = new Connections(standby.url(), options);
  t.after(() => connections.close());
  const list = connections.query({ text: 'SELECT * FROM plants' });
  await assert.rejects(list, StoreUnavailable);

  await standby.sql('SELECT pg_promote()');
  assert.deepEqual(await connections.query({ text: 'SELECT * FROM plants' }), []);
});
