import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import pg from 'pg';
import { migratePostgres, postgresStoreExists } from '../../../src/store/postgres/migrate.ts';
import { execute, postgres, rowsOf } from '../../support/engines.ts';
import { holdMigration } from '../../support/faults/hold-migration.ts';
import { until } from '../../support/patience.ts';

/** Rejects, as Citus does for its tables, a change of the schema in a query with further statements. */
const REJECT_SEVERAL_STATEMENTS = `
  CREATE FUNCTION reject_several_statements() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN
    IF current_query() ~ ';\\s*\\S' THEN
      RAISE EXCEPTION 'cannot insert multiple commands into a prepared statement' USING ERRCODE = '42601';
    END IF;
  END$$;
  CREATE EVENT TRIGGER reject_several_statements ON ddl_command_end
    EXECUTE FUNCTION reject_several_statements()`;

async function freshUrl(t: TestContext): Promise<string> {
  return postgres.freshUrl(t);
}

test('a server that rejects several statements in one query (Citus) → migrations are applied', async (t) => {
  const url = await freshUrl(t);
  await execute(url, REJECT_SEVERAL_STATEMENTS);
  assert.notDeepEqual(await migratePostgres(url), []);
});

for (const level of ['repeatable read', 'serializable'])
  test(`the database sets ${level}, and instances start together → migrations are applied once`, async (t) => {
    const url = await freshUrl(t);
    const database = new URL(url).pathname.slice(1);
    await execute(url, `ALTER DATABASE ${database} SET default_transaction_isolation = '${level}'`);
    const applied = await Promise.all([1, 2, 3, 4].map(() => migratePostgres(url)));
    assert.equal(applied.filter(({ length }) => length > 0).length, 1);
  });

test('the database sets lock_timeout → a migration waits longer for a lock', async (t) => {
  const { databaseUrl, release } = await holdMigration(t);
  await execute(
    databaseUrl,
    `ALTER DATABASE ${new URL(databaseUrl).pathname.slice(1)} SET lock_timeout = '1ms'`,
  );
  const migrating = migratePostgres(databaseUrl);
  const waiting = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
                      AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '100 ms'`;
  await Promise.race([migrating, until(async () => (await rowsOf(databaseUrl, waiting)).length > 0)]);
  await release();
  assert.notDeepEqual(await migrating, []);
});

test('another session keeps a lock → the migration stops waiting from time to time, for others in the queue', async (t) => {
  const { databaseUrl, waits, release } = await holdMigration(t);
  let reports = 0;
  const onBlocked = (): void => {
    reports += 1;
  };
  const migrating = migratePostgres(databaseUrl, { onBlocked });
  const pausing = `SELECT 1 FROM pg_stat_activity
                    WHERE datname = current_database() AND state = 'idle in transaction' AND query LIKE 'ROLLBACK TO %'`;
  await Promise.race([migrating, until(async () => (await rowsOf(databaseUrl, pausing)).length > 0)]);
  await waits();
  await Promise.race([migrating, until(async () => (await rowsOf(databaseUrl, pausing)).length > 0)]);
  await release();
  assert.notDeepEqual(await migrating, []);
  assert.equal(reports, 1);
});

test('another instance migrates for over a second → the migration reports that it waits', async (t) => {
  const url = await freshUrl(t);
  const other = new pg.Client({ connectionString: url });
  await other.connect();
  await other.query(`SELECT pg_advisory_lock(${0x706c616e7473})`);
  const { promise: blocked, resolve: onBlocked } = Promise.withResolvers<void>();
  const migrating = migratePostgres(url, { onBlocked });
  await blocked;
  await other.end();
  assert.notDeepEqual(await migrating, []);
});

test('another session keeps a lock for longer than the timeout → the error says what to do', async (t) => {
  const { databaseUrl, waits, release } = await holdMigration(t);
  const rejected = assert.rejects(migratePostgres(databaseUrl), {
    name: 'StoreNotOpened',
    message: /^another session keeps a lock: .*; wait until it ends/,
  });
  await waits();
  const now = performance.now.bind(performance);
  t.mock.method(performance, 'now', () => now() + 61_000);
  await rejected;
  await release();
});

for (const columns of ['id integer, name text', 'id integer, migration text, batch integer', 'name text'])
  test(`table migrations (${columns}) of another program → rejected, and no table is added`, async (t) => {
    const url = await freshUrl(t);
    await execute(url, `CREATE TABLE migrations (${columns})`);
    for (const open of [migratePostgres, postgresStoreExists])
      await assert.rejects(
        open(url),
        /is that of another program, or lacks a table .*; name another database/,
      );
    assert.deepEqual(await rowsOf(url, "SELECT to_regclass('plants') AS plants"), [{ plants: null }]);
  });

for (const table of ['plants', 'tokens', 'idempotency_keys'])
  test(`store without its table ${table} → the error names the tables, and none is added`, async (t) => {
    const url = await freshUrl(t);
    await migratePostgres(url);
    await execute(url, `ALTER TABLE ${table} RENAME TO lost`);
    for (const open of [migratePostgres, postgresStoreExists])
      await assert.rejects(open(url), {
        name: 'StoreNotOpened',
        message: /lacks a table .* or restore a backup$/,
      });
    assert.deepEqual(await rowsOf(url, `SELECT to_regclass('${table}') AS found`), [{ found: null }]);
  });

for (const [tables, prepare] of [
  ['a table plants of another program', (url: string) => execute(url, 'CREATE TABLE plants (id integer)')],
  [
    'the tables of a store without the rows of `migrations`, as of pg_dump --schema-only',
    async (url: string) => {
      await migratePostgres(url);
      await execute(url, 'DELETE FROM migrations');
    },
  ],
] as const)
  test(`${tables} → the error says what to do`, async (t) => {
    const url = await freshUrl(t);
    await prepare(url);
    await assert.rejects(migratePostgres(url), {
      name: 'StoreNotOpened',
      message:
        'cannot open the PostgreSQL store: the migration 0001-plants-and-tokens.sql failed: relation "plants" already exists; it is that of another program, or of a restore without the rows of `migrations`: name another database, or restore these rows too',
    });
  });
