import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Connections } from '../../src/store/postgres/connections.ts';
import { inTransaction } from '../../src/store/postgres/transaction.ts';
import {
  connections,
  engines,
  execute,
  postgres,
  rowsOf,
  sqlite,
  type TestEngine,
} from '../support/engines.ts';
import { changeFreePages, damagePage } from '../support/faults/damaged-file.ts';
import { assertFails, type Installation, newInstallation, TOGETHER } from '../support/program.ts';

const EXAMPLE = fileURLToPath(new URL('../../examples/plants.ndjson', import.meta.url));

/** Creates a store with the example plants and a token, and a function that damages it with SQL. */
async function prepare(t: TestContext, engine: TestEngine) {
  const installation = await newInstallation(t);
  const url = await engine.freshUrl(t);
  const flags = ['--database-url', url];
  assert.equal((await installation.run(['import', 'alice', EXAMPLE, ...flags])).code, 0);
  assert.equal((await installation.run(['token', 'create', 'alice', ...flags])).code, 0);
  return {
    folder: installation.folder,
    url,
    execute: (sql: string) => execute(url, sql),
    run: (args: readonly string[]) => installation.run(args, { env: { DATABASE_URL: url } }),
    check: (...args: string[]) => installation.run(['check', ...flags, ...args]),
  };
}

function faulty({ code, stderr }: { code: number | null; stderr: string }): void {
  assert.equal(code, 1);
  assert.match(
    stderr,
    /^plant-store: \d+ faults? found; make a copy of the store before you change anything\n$/,
  );
}

for (const engine of engines) {
  describe(`check on ${engine.name}`, TOGETHER, () => {
    it('sound store → "sound" with the counts', async (t) => {
      const { check } = await prepare(t, engine);
      const { code, stdout, stderr } = await check();
      assert.deepEqual(
        { code, stdout, stderr },
        { code: 0, stdout: 'sound: 630 plants, 1 token, 0 idempotency keys\n', stderr: '' },
      );
      const json: unknown = JSON.parse((await check('--json')).stdout);
      assert.deepEqual(json, { sound: true, plants: 630, tokens: 1, keys: 0, faults: [] });
    });

    it('ids that are no doubles → sound', async (t) => {
      const { check, execute } = await prepare(t, engine);
      await execute(
        `UPDATE plants SET id = 9223372036854775807 WHERE id = 1;
         UPDATE plants SET id = -9223372036854775808 WHERE id = 2`,
      );
      const { code, stdout } = await check();
      assert.deepEqual({ code, stdout: stdout.split(',', 1)[0] }, { code: 0, stdout: 'sound: 630 plants' });
    });

    it('one time of a token is negative, or its owner is empty → the token is named', async (t) => {
      const { check, execute } = await prepare(t, engine);
      for (const column of ['created_at', 'expires_at', 'revoked_at', 'last_used_at']) {
        await execute(`UPDATE tokens SET created_at = 0, expires_at = NULL, revoked_at = NULL, last_used_at = NULL;
                       UPDATE tokens SET ${column} = -1`);
        const found = await check();
        faulty(found);
        assert.match(found.stdout, /^the token \w{12}: its times must be milliseconds since the epoch\n$/);
      }
      await execute("UPDATE tokens SET last_used_at = NULL, owner = ''");
      assert.match((await check()).stdout, /^the token \w{12}: its owner "" is invalid\n$/);
    });

    it('invalid rows → each is named', async (t) => {
      const { check, run, execute } = await prepare(t, engine);
      await execute(
        `UPDATE tokens SET expires_at = 9000000000000000, last_used_at = -1;
         INSERT INTO plants (owner, id, name) VALUES ('', 7, 'x'), ('b\u001b[2J', 8, 'x'),
           ('https://id.example#7d1f', 9, 'x');
         INSERT INTO idempotency_keys (owner, key, digest, outcome, first_used_at)
           SELECT 'alice', 'two words', digest, 'created', 1 FROM tokens;
         INSERT INTO idempotency_keys (owner, key, digest, outcome, first_used_at)
           SELECT 'alice', 'short', substr(digest, 1, 31), 'created', 1 FROM tokens;
         INSERT INTO idempotency_keys (owner, key, digest, outcome, first_used_at)
           SELECT 'a b', 'one', digest, 'created', 1 FROM tokens;
         INSERT INTO tokens (owner, id, digest, name, scopes, created_at)
           SELECT owner, 'a b c', substr(digest, 1, 4), name, scopes, created_at FROM tokens;
         INSERT INTO tokens (owner, id, digest, name, scopes, created_at)
           SELECT owner, 'another00001', substr(digest, 1, 5), name, scopes, created_at FROM tokens WHERE id <> 'a b c'`,
      );
      const found = await check();
      faulty(found);
      for (const fault of [
        /^the plant 7: its owner "" is invalid$/m,
        /^the plant 8: its owner "b\\u001b\[2J" is invalid$/m,
        /^the token "a b c": its id is invalid$/m,
        /^the idempotency key "one": its owner "a b" is invalid$/m,
        /the token \w{12}: its times must be milliseconds since the epoch/,
        /the token another00001: its digest is not SHA-256/,
        /the idempotency key "two words" of alice: it must be 1 to 255 visible ASCII characters/,
        /the idempotency key "short" of alice: its digest is not SHA-256/,
      ]) {
        assert.match(found.stdout, fault);
      }
      assert.doesNotMatch(found.stdout, /id\.example/);
      assert.match((await run(['token', 'list'])).stdout, / 9000000000000000 .* 1969-12-31/);
    });

    it('token with an unknown scope → named with the remedy, also by other commands', async (t) => {
      const { folder, url, check, run, execute } = await prepare(t, engine);
      await execute("UPDATE tokens SET scopes = 'plants:eat'");
      const found = await check('--json');
      faulty(found);
      const json: { sound: boolean; faults: readonly string[] } = JSON.parse(found.stdout);
      assert.equal(json.sound, false);
      const [fault = '', ...others] = json.faults;
      assert.deepEqual(others, []);
      assert.match(
        fault,
        /^tokens, after row 0: the token \w{12} has scopes that this version does not know; run the version that wrote it, or if none did, delete this row: DELETE FROM tokens WHERE id = '\w{12}'$/,
      );
      const [, id = ''] = /the token (\w+)/.exec(fault) ?? [];
      const explained = new RegExp(`^plant-store: the token ${id} has scopes that this version.*`, 'm');
      assertFails(await run(['token', 'list']), explained);
      assertFails(await run(['token', 'revoke', id]), explained);
      assertFails(await run(['copy', url, `sqlite:${join(folder, 'copy.db')}`]), explained);
      const [remedy = ''] = /DELETE FROM .*$/.exec(fault) ?? [];
      await execute(remedy);
      assert.equal((await check()).code, 0);
    });

    it('store of an older or a newer version → the message says which, and not to make a copy', async (t) => {
      const { check, execute } = await prepare(t, engine);
      await execute("INSERT INTO migrations (name) VALUES ('9999-from-the-future.sql')");
      const newer = await check();
      assert.deepEqual([newer.code, newer.stderr], [1, 'plant-store: 1 fault found\n']);
      assert.match(newer.stdout, /made by a newer version.*9999-from-the-future/);
      await execute('DELETE FROM migrations');
      const older = await check();
      assert.deepEqual([older.code, older.stderr], [1, 'plant-store: 1 fault found\n']);
      assert.match(older.stdout, /lacks 0001-\S+.*plant-store migrate/);
    });
  });
}

describe('check on PostgreSQL', TOGETHER, () => {
  it('connection lost → not reported as a fault of the store', async (t) => {
    const { check, url, execute } = await prepare(t, postgres);
    const holder = new Connections(url, connections);
    t.after(() => holder.close());
    const checked = await holder.use((connection) =>
      inTransaction(connection, 'BEGIN', async () => {
        await connection.query({ text: 'LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE' });
        const result = check();
        await untilOneWaits(url);
        await execute(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${IS_WAITING}`);
        return result;
      }),
    );
    assert.deepEqual({ code: checked.code, stdout: checked.stdout }, { code: 1, stdout: '' });
    assert.match(checked.stderr, /^plant-store: PostgreSQL: terminating connection/);
  });

  it('tables that the server cannot read → each is named', async (t) => {
    const { check, execute } = await prepare(t, postgres);
    await execute(
      `CREATE FUNCTION is_readable() RETURNS boolean LANGUAGE plpgsql AS
         $$BEGIN RAISE EXCEPTION 'invalid page in block 7' USING ERRCODE = 'XX001'; END$$;
       ALTER TABLE plants RENAME TO whole_plants;
       CREATE VIEW plants AS SELECT * FROM whole_plants WHERE is_readable();
       ALTER TABLE tokens RENAME TO whole_tokens;
       CREATE VIEW tokens AS SELECT * FROM whole_tokens WHERE is_readable()`,
    );
    const found = await check();
    faulty(found);
    const reason = 'PostgreSQL: invalid page in block 7 (XX001)';
    assert.equal(found.stdout, `plants, after row 0: ${reason}\ntokens, after row 0: ${reason}\n`);
  });
});

const IS_WAITING = "datname = current_database() AND wait_event_type = 'Lock'";

async function untilOneWaits(url: string): Promise<void> {
  for (;;) {
    const waiting = await rowsOf(url, `SELECT pid FROM pg_stat_activity WHERE ${IS_WAITING}`);
    if (waiting.length > 0) return;
  }
}

describe('check on an embedded store', TOGETHER, () => {
  async function prepareFile(
    t: TestContext,
  ): Promise<Awaited<ReturnType<typeof prepare>> & { file: string }> {
    const prepared = await prepare(t, sqlite);
    return { ...prepared, file: prepared.url.replace('sqlite:', '') };
  }

  it('damaged page → found', async (t) => {
    const { check, file } = await prepareFile(t);
    await damagePage(file);
    const found = await check();
    faulty(found);
    assert.match(found.stdout, /malformed|btree|[Pp]age/);
  });

  it('faults that SQLite reports together → a line for each', async (t) => {
    const { check, file } = await prepareFile(t);
    await changeFreePages(file);
    const found = await check();
    faulty(found);
    assert.match(found.stdout, /^[^*\\]*is 0 but should be 9\n$/);
  });

  it('text that no request could have stored → found', async (t) => {
    const { check, execute } = await prepareFile(t);
    await execute("UPDATE plants SET name = 'a' || char(0) || 'b' WHERE id = 1");
    const withNul = await check();
    faulty(withNul);
    assert.match(withNul.stdout, /the plant 1 of alice: its name must be a string without U\+0000/);
    await execute("UPDATE plants SET name = CAST(x'66ff' AS TEXT) WHERE id = 1");
    const notUtf8 = await check();
    faulty(notUtf8);
    assert.match(notUtf8.stdout, /the plant 1 of alice: its text is not UTF-8/);
    await execute("UPDATE plants SET name = CAST(x'6100ff' AS TEXT) WHERE id = 1");
    const both = await check();
    faulty(both);
    assert.match(both.stdout, /the plant 1 of alice: its text is not UTF-8/);
    // Together, the two texts would be the valid text é.
    await execute("UPDATE plants SET name = CAST(x'c3' AS TEXT), tag = CAST(x'a9' AS TEXT) WHERE id = 1");
    const halves = await check();
    faulty(halves);
    assert.match(halves.stdout, /the plant 1 of alice: its text is not UTF-8/);
  });

  it('token or idempotency key whose text is not UTF-8 → found', async (t) => {
    const { check, execute } = await prepareFile(t);
    await execute(
      "INSERT INTO tokens VALUES ('alice', 'abc', x'00', CAST(x'ff' AS TEXT), 'plants:read', 0, NULL, NULL, NULL)",
    );
    await execute("INSERT INTO idempotency_keys VALUES ('bob', CAST(x'ff' AS TEXT), x'00', 'created', 0)");
    const found = await check();
    faulty(found);
    assert.match(found.stdout, /the token abc: its text is not UTF-8/);
    assert.match(found.stdout, /the idempotency key .* of bob: its text is not UTF-8/);
  });

  it('large plant without its text, or text without a plant → found', async (t) => {
    const { check, execute } = await prepareFile(t);
    await execute(
      `UPDATE plants SET id = 9223372036854775807, large_id = 5 WHERE id = 1;
       INSERT INTO large_plants VALUES (6, '{"name":""}')`,
    );
    const found = await check();
    faulty(found);
    const plant = 'the plant 9223372036854775807 of alice';
    assert.ok(found.stdout.includes(`${plant}: its row in large_plants is missing\n`), found.stdout);
    assert.ok(found.stdout.includes(`${plant}: it has fields next to its row in large_plants\n`));
    assert.match(
      found.stdout,
      /belongs to no plant: 6\. If its plant was deleted: `DELETE FROM large_plants WHERE large_id = 6;`/,
    );
  });

  it('file is not a store → a fault', async (t) => {
    const installation: Installation = await newInstallation(t);
    await writeFile(installation.file, 'Dear diary, today I planted an alder.\n'.repeat(200));
    const diary = await installation.run(['check']);
    faulty(diary);
    assert.match(diary.stdout, /not a database/);
  });

  it('empty file, as after a power cut in the first start → no store, no fault, and a start makes one', async (t) => {
    const installation = await newInstallation(t);
    await writeFile(installation.file, '');
    const empty = await installation.run(['check']);
    assert.deepEqual({ code: empty.code, stdout: empty.stdout }, { code: 1, stdout: '' });
    assert.match(empty.stderr, /^plant-store: there is no store at .*plants\.db yet/);
    assert.equal((await installation.run(['migrate'])).code, 0);
    assert.equal((await installation.run(['check'])).code, 0);
  });

  it('database of another program → a fault', async (t) => {
    const installation = await newInstallation(t);
    for (const sql of [
      'CREATE TABLE diary (day TEXT)',
      "CREATE TABLE migrations (name TEXT); INSERT INTO migrations VALUES ('2024_01_users')",
      'CREATE TABLE tokens (id INTEGER)',
    ]) {
      await execute(installation.databaseUrl, sql);
      const foreign = await installation.run(['check']);
      faulty(foreign);
      assert.match(foreign.stdout, /another program/);
    }
  });
});
