// cspell:words indexrelname
import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { deleteExpiredKeys } from '../../../src/store/postgres/expired-keys.ts';
import { migratePostgres } from '../../../src/store/postgres/migrate.ts';
import type { Statement } from '../../../src/store/postgres/statements.ts';
import { inTransaction } from '../../../src/store/postgres/transaction.ts';
import { execute, connections as options, postgres, rowsOf } from '../../support/engines.ts';

const UNTIL = 1_000;
const OWNERS = 3;

/** A store with a number of idempotency keys of each age, from several owners. */
async function storeWith(t: TestContext, ages: Readonly<Record<number, number>>): Promise<string> {
  const url = await postgres.freshUrl(t);
  await migratePostgres(url);
  for (const [firstUsedAt, count] of Object.entries(ages))
    await execute(
      url,
      `INSERT INTO idempotency_keys (owner, key, digest, outcome, first_used_at)
       SELECT 'owner ' || n % ${OWNERS}, '${firstUsedAt} ' || n, '', 'created', ${firstUsedAt}
         FROM generate_series(1, ${count}) AS n`,
    );
  return url;
}

function connect(t: TestContext, url: string): Connections {
  const connections = new Connections(url, options);
  t.after(() => connections.close());
  return connections;
}

async function agesIn(url: string): Promise<unknown> {
  const sql = 'SELECT first_used_at, count(*) FROM idempotency_keys GROUP BY 1 ORDER BY 1';
  const rows = await rowsOf(url, sql);
  return Object.fromEntries(rows.map((row) => [Number(row.first_used_at), Number(row.count)]));
}

for (const perOwner of [false, true]) {
  const deleteKeys = (connections: Connections): Promise<void> =>
    deleteExpiredKeys(connections, UNTIL, perOwner);

  describe(perOwner ? 'owner by owner' : 'all owners together', () => {
    test('expired keys of any number of owners are deleted, and no others', async (t) => {
      const url = await storeWith(t, { 1: 2_300, [UNTIL]: 200, [UNTIL + 1]: 50 });
      await deleteKeys(connect(t, url));
      assert.deepEqual(await agesIn(url), { [UNTIL + 1]: 50 });
    });

    test('an old transaction keeps the deleted keys in the index → each is read once or twice', async (t) => {
      const keys = 4_000;
      const url = await storeWith(t, {});
      await execute(
        url,
        `INSERT INTO idempotency_keys (owner, key, digest, outcome, first_used_at)
         SELECT 'owner ' || n % ${OWNERS}, n, '', 'created', n / 5 FROM generate_series(1, ${keys}) AS n`,
      );
      const old = connect(t, url);
      const connections = new Connections(url, { ...options, poolSize: 1 });
      t.after(() => connections.close());
      await old.use((connection) =>
        inTransaction(connection, 'BEGIN ISOLATION LEVEL REPEATABLE READ', async () => {
          await connection.query({ text: 'SELECT count(*) FROM idempotency_keys' });
          await deleteKeys(connections);
        }),
      );
      await connections.query({ text: 'SELECT pg_stat_force_next_flush()' });
      const [index] = await rowsOf(
        url,
        `SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'idempotency_keys_by_age'`,
      );
      const read = Number(index?.idx_tup_read);
      assert.ok(read >= keys && read < 3 * keys, `${read} entries of the index read`);
    });

    test('a locked key is skipped without waiting', async (t) => {
      const url = await storeWith(t, { 1: 20 });
      const [holder, other] = [connect(t, url), connect(t, url)];
      await holder.use((connection) =>
        inTransaction(connection, 'BEGIN', async () => {
          await connection.query({
            text: "SELECT FROM idempotency_keys WHERE owner = 'owner 1' AND key = '1 7' FOR UPDATE",
          });
          await deleteKeys(other);
          assert.deepEqual(await agesIn(url), { 1: 1 });
        }),
      );
      await deleteKeys(other);
      assert.deepEqual(await agesIn(url), {});
    });

    test('the server rolls deletions back for other transactions → they are retried', async (t) => {
      const url = await storeWith(t, { 1: 2_300 });
      // A sequence also counts rolled-back work.
      await execute(
        url,
        `CREATE SEQUENCE tries;
         CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
           IF nextval('tries') <= 3 THEN RAISE EXCEPTION 'undone' USING ERRCODE = '40001'; END IF;
           RETURN NULL;
         END$$;
         CREATE TRIGGER undo BEFORE DELETE ON idempotency_keys FOR EACH STATEMENT EXECUTE FUNCTION undo()`,
      );
      const connections = new Connections(url, { ...options, poolSize: 1 });
      t.after(() => connections.close());
      await deleteKeys(connections);
      assert.deepEqual(await agesIn(url), {});
    });

    test('several instances delete at the same time → all keys are deleted', async (t) => {
      const url = await storeWith(t, { 1: 5_000 });
      await Promise.all([1, 2, 3].map(() => deleteKeys(connect(t, url))));
      // An instance that finds all keys locked leaves them to the others.
      await deleteKeys(connect(t, url));
      assert.deepEqual(await agesIn(url), {});
    });
  });
}

test('owner by owner: an expired key is used again after it was found → it stays', async (t) => {
  const url = await storeWith(t, { 1: 20 });
  const connections = new (class extends Connections {
    override async read(statement: Statement) {
      const found = await super.read(statement);
      await execute(url, `UPDATE idempotency_keys SET first_used_at = ${UNTIL + 1} WHERE key = '1 7'`);
      return found;
    }
  })(url, options);
  t.after(() => connections.close());
  await deleteExpiredKeys(connections, UNTIL, true);
  assert.deepEqual(await agesIn(url), { [UNTIL + 1]: 1 });
});
