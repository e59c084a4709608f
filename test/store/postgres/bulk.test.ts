import assert from 'node:assert/strict';
import { test } from 'node:test';
import pg from 'pg';
import { StoreNotEmpty } from '../../../src/store/bulk-store.ts';
import { migrateStore, openBulk, rejectUnlessFillable } from '../../../src/store/open-engine.ts';
import { StoreUnavailable } from '../../../src/store/store.ts';
import { connections, execute, postgres, rowsOf } from '../../support/engines.ts';
import { PATIENCE_MS, until } from '../../support/patience.ts';
import { plantRow } from '../../support/plants.ts';

test('statement of a bulk is cancelled → the session is kept', async (t) => {
  const opened = new AsyncDisposableStack();
  t.after(() => opened.disposeAsync());
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  const bulk = await openBulk(url, { ...connections, statementTimeoutMs: PATIENCE_MS });
  opened.defer(() => bulk.close());
  const other = new pg.Client({ connectionString: url, application_name: 'other' });
  await other.connect();
  opened.defer(() => other.end());
  const sessions = async (): Promise<readonly unknown[]> => {
    const text = `SELECT pid FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name <> 'other'
                     AND backend_type = 'client backend'`;
    return (await other.query<{ pid: number }>(text)).rows.map(({ pid }) => pid);
  };
  const plants = [plantRow(1n)];
  assert.deepEqual(await bulk.savePlants(plants, 'fail'), []);
  // The session of the migration ends shortly after its connection.
  await until(async () => (await sessions()).length === 1);
  const before = await sessions();
  await other.query('BEGIN; LOCK TABLE plants IN ACCESS EXCLUSIVE MODE');
  const cancelled = assert.rejects(bulk.savePlants(plants, 'replace'), StoreUnavailable);
  await until(async () => {
    const text = `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    return (await other.query(text)).rows.length > 0;
  });
  await cancelled;
  await other.query('ROLLBACK');
  assert.deepEqual(await bulk.savePlants(plants, 'replace'), [0]);
  assert.deepEqual(await sessions(), before);
});

const rewrites = [
  ['rewritten', 'ALTER TABLE plants ALTER COLUMN name TYPE varchar(200)'],
  [
    'replaced',
    `ALTER TABLE plants RENAME TO old_plants;
     CREATE TABLE plants (LIKE old_plants INCLUDING ALL);
     INSERT INTO plants SELECT * FROM old_plants;
     DROP TABLE old_plants`,
  ],
] as const;

for (const [what, sql] of rewrites)
  test(`the table is ${what} while a read begins → every row`, async (t) => {
    const opened = new AsyncDisposableStack();
    t.after(() => opened.disposeAsync());
    const url = await postgres.freshUrl(t);
    await migrateStore(url);
    const bulk = await openBulk(url, connections);
    opened.defer(() => bulk.close());
    const other = new pg.Client({ connectionString: url });
    await other.connect();
    opened.defer(() => other.end());
    await bulk.savePlants([plantRow(1n)], 'fail');
    await other.query(`BEGIN; ${sql}`);
    const read = bulk.read(['plants'], (contents) => contents.countPlants());
    await until(async () => (await other.query('SELECT 1 FROM pg_locks WHERE NOT granted')).rows.length > 0);
    await other.query('COMMIT');
    assert.equal(await read, 1);
  });

test('another session locks plants → tokens are read', async (t) => {
  const opened = new AsyncDisposableStack();
  t.after(() => opened.disposeAsync());
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  const bulk = await openBulk(url, connections);
  opened.defer(() => bulk.close());
  const other = new pg.Client({ connectionString: url });
  await other.connect();
  opened.defer(() => other.end());
  await other.query('BEGIN; LOCK TABLE plants IN ACCESS EXCLUSIVE MODE');
  assert.deepEqual(await bulk.read(['tokens'], (contents) => Array.fromAsync(contents.tokens())), []);
});

test('a table is read in part, and then whole → every row', async (t) => {
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  const bulk = await openBulk(url, connections);
  t.after(() => bulk.close());
  await bulk.savePlants(
    Array.from({ length: 2_500 }, (_, id) => plantRow(BigInt(id))),
    'fail',
  );
  const counts = await bulk.read(['plants'], async (contents) => {
    const pages = contents.plants()[Symbol.asyncIterator]();
    const first = await pages.next();
    await pages.return?.();
    let count = 0;
    for await (const page of contents.plants()) count += page.length;
    return [first.done, count];
  });
  assert.deepEqual(counts, [false, 2_500]);
});

for (const onConflict of ['fail', 'skip', 'replace'] as const)
  test(`the server ends a save for a deadlock, --on-conflict ${onConflict} → it is retried`, async (t) => {
    const url = await postgres.freshUrl(t);
    await migrateStore(url);
    const bulk = await openBulk(url, connections);
    t.after(() => bulk.close());
    // A sequence also counts rolled-back work.
    await execute(
      url,
      `CREATE SEQUENCE tries;
       CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
         IF nextval('tries') = 1 THEN RAISE EXCEPTION 'undone' USING ERRCODE = '40P01'; END IF;
         RETURN NULL;
       END$$;
       CREATE TRIGGER undo AFTER INSERT ON plants FOR EACH STATEMENT EXECUTE FUNCTION undo()`,
    );
    assert.deepEqual(await bulk.savePlants([plantRow(1n), plantRow(2n)], onConflict), []);
    assert.equal(await bulk.read(['plants'], (contents) => contents.countPlants()), 2);
  });

test('all plants are counted → the table is read in one pass', async (t) => {
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  await execute(url, "INSERT INTO plants (owner, id, name) VALUES ('alice', 1, 'a'), ('alice', 2, 'b')");
  const bulk = await openBulk(url, connections);
  const count = bulk.read(['plants'], (contents) => contents.countPlants());
  assert.equal(await count.finally(() => bulk.close()), 2);
  // The session reports its numbers when it ends.
  const scans = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'plants'";
  await until(async () => Number((await rowsOf(url, scans))[0]?.seq_tup_read) === 2);
});

test('an empty target is locked for longer than a migration waits for a lock → the check for `copy` waits', async (t) => {
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  const other = new pg.Client({ connectionString: url });
  await other.connect();
  try {
    await other.query('BEGIN; LOCK TABLE plants IN SHARE MODE');
    const checked = rejectUnlessFillable(url);
    const waiting = `SELECT FROM pg_stat_activity WHERE datname = current_database()
                        AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '1.5 s'`;
    await Promise.race([checked, until(async () => (await rowsOf(url, waiting)).length > 0)]);
    await other.query('ROLLBACK');
    await checked;
  } finally {
    await other.end();
  }
});

test('another writer creates a plant while --on-conflict replace saves it → it counts as replaced', async (t) => {
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  const bulk = await openBulk(url, { ...connections, statementTimeoutMs: PATIENCE_MS });
  t.after(() => bulk.close());
  const other = new pg.Client({ connectionString: url });
  await other.connect();
  try {
    await other.query("BEGIN; INSERT INTO plants (owner, id, name) VALUES ('alice', 2, 'of the other')");
    const saved = bulk.savePlants([plantRow(1n), plantRow(2n), plantRow(3n)], 'replace');
    const waiting = `SELECT FROM pg_stat_activity
                      WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    await until(async () => (await rowsOf(url, waiting)).length > 0);
    await other.query('COMMIT');
    assert.deepEqual(await saved, [1]);
  } finally {
    await other.end();
  }
  const changed = await rowsOf(url, "SELECT id FROM plants WHERE name = 'of the other'");
  assert.deepEqual(changed, []);
});

test('two copies fill one empty store at the same time → the second is rejected, and the first is complete', async (t) => {
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  const [first, second] = await Promise.all([openBulk(url, connections), openBulk(url, connections)]);
  t.after(() => Promise.all([first.close(), second.close()]));
  await first.fill(async ({ addPlants }) => {
    await addPlants([plantRow(1n)]);
    await assert.rejects(
      second.fill(({ addPlants }) => addPlants([plantRow(2n)])),
      {
        message: 'another copy fills this store; wait until it ends',
      },
    );
  });
  assert.equal(await first.read(['plants'], (contents) => contents.countPlants()), 1);
  await assert.rejects(
    second.fill(async () => assert.fail()),
    StoreNotEmpty,
  );
});

test('transactions of commands → have their timeouts, whatever the session has', async (t) => {
  const url = await postgres.freshUrl(t);
  const report = (kind: string): string =>
    `CREATE OR REPLACE FUNCTION report() RETURNS ${kind} LANGUAGE plpgsql AS $$BEGIN
       RAISE EXCEPTION 'timeouts: %, %', current_setting('statement_timeout'),
                       current_setting('idle_in_transaction_session_timeout');
     END$$;`;
  await execute(
    url,
    `${report('event_trigger')} CREATE EVENT TRIGGER report ON ddl_command_start EXECUTE FUNCTION report()`,
  );
  await assert.rejects(migrateStore(url), /timeouts: 1min, 1min$/);
  await execute(url, 'DROP EVENT TRIGGER report; DROP FUNCTION report');
  await migrateStore(url);
  await execute(
    url,
    `${report('trigger')} CREATE TRIGGER report BEFORE INSERT ON plants EXECUTE FUNCTION report()`,
  );
  const bulk = await openBulk(url, { ...connections, statementTimeoutMs: 600_000 });
  const saved = bulk.savePlants([plantRow(1n)], 'fail');
  await assert.rejects(saved, /timeouts: 10min, 10min /).finally(() => bulk.close());
});
