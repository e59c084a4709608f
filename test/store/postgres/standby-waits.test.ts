import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { NothingStored, type Outcome, type Store, StoreUnavailable } from '../../../src/store/store.ts';
import { execute, connections as options, postgres, rowsOf } from '../../support/engines.ts';
import { createOnce, create as creation } from '../../support/store-setup.ts';

/** Opens a store that finds a view of the test instead of the server's view of its sessions, and fails for plants named 'fails'. */
async function openFresh(t: TestContext, view: string): Promise<{ url: string; store: Store }> {
  const url = await postgres.freshUrl(t);
  await execute(url, `ALTER DATABASE ${new URL(url).pathname.slice(1)} SET search_path = public, pg_catalog`);
  const store = await openStore(url, { now: Date.now, connections: options, onFatal: assert.fail });
  t.after(() => store.close());
  await execute(
    url,
    `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
       IF NEW.name = 'fails' THEN RAISE EXCEPTION 'disk full' USING ERRCODE = '53100'; END IF;
       RETURN NEW;
     END$$;
     CREATE TRIGGER fail BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION fail();
     ${view}`,
  );
  return { url, store };
}

async function failTimes(store: Store, times: number): Promise<void> {
  for (let time = 0; time < times; time += 1)
    await assert.rejects(store.write(creation(0n, { name: 'fails' })), StoreUnavailable);
}

test('two commits fail → the next one counts those that wait for a standby, and later ones do not', async (t) => {
  // A sequence also counts rolled-back work.
  const { url, store } = await openFresh(
    t,
    `CREATE SEQUENCE counts;
     CREATE FUNCTION activity() RETURNS SETOF pg_catalog.pg_stat_activity LANGUAGE plpgsql AS $$BEGIN
       PERFORM nextval('counts');
       RETURN QUERY SELECT * FROM pg_catalog.pg_stat_activity;
     END$$;
     CREATE VIEW pg_stat_activity AS SELECT * FROM activity()`,
  );
  const counts = async () => (await rowsOf(url, 'SELECT is_called, last_value FROM counts'))[0];
  await failTimes(store, 2);
  assert.deepEqual(await counts(), { is_called: false, last_value: '1' });
  for (const id of [1n, 2n, 3n]) assert.equal(await store.write(creation(id)), 'created');
  assert.deepEqual(await counts(), { is_called: true, last_value: '1' });
  await failTimes(store, 1);
  assert.equal(await store.write(creation(4n)), 'created');
  assert.deepEqual(await counts(), { is_called: true, last_value: '1' });
});

test('as many commits as connections wait for a standby → nothing is stored, until fewer wait', async (t) => {
  const { url, store } = await openFresh(
    t,
    `CREATE TABLE waits (ms integer, database name DEFAULT current_database(), event text DEFAULT 'SyncRep');
     CREATE VIEW pg_stat_activity AS
       SELECT database AS datname, event AS wait_event,
              clock_timestamp() - ms * interval '1 millisecond' AS query_start FROM waits`,
  );
  const { poolSize, statementTimeoutMs } = options;
  const long = statementTimeoutMs + 1_000;
  // None of these count: waits for less than the timeout, of another database, or for something else.
  await execute(
    url,
    `INSERT INTO waits SELECT 0 FROM generate_series(1, ${poolSize});
     INSERT INTO waits SELECT ${long}, 'other' FROM generate_series(1, ${poolSize});
     INSERT INTO waits SELECT ${long}, current_database(), 'ClientRead' FROM generate_series(1, ${poolSize});
     INSERT INTO waits SELECT ${long} FROM generate_series(2, ${poolSize})`,
  );
  let id = 0n;
  const write = (): Promise<Outcome> => {
    id += 1n;
    return store.write(createOnce(id, `${id}`));
  };
  await failTimes(store, 2);
  assert.equal(await write(), 'created');

  await failTimes(store, 2);
  await execute(url, `INSERT INTO waits VALUES (${long})`);
  const isRejection = (error: unknown): boolean =>
    error instanceof NothingStored && error.message.startsWith(`${poolSize} commits are already waiting`);
  for (let time = 0; time < 2; time += 1) await assert.rejects(write(), isRejection);
  await execute(url, `DELETE FROM waits`);
  assert.equal(await write(), 'created');
});

test('the server cannot count the commits that wait for a standby → writes go on', async (t) => {
  const { store } = await openFresh(t, `CREATE VIEW pg_stat_activity AS SELECT 1 AS other`);
  await failTimes(store, 2);
  assert.equal(await store.write(creation(1n)), 'created');
});
