// cspell:words indisvalid indexrelid attnotnull relkind datcollversion
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, type TestContext, test } from 'node:test';
import { migrateStore, openBulk, openStore } from '../../../src/store/open-engine.ts';
import { connections, execute, postgres, rowsOf } from '../../support/engines.ts';
import { bearer, startService } from '../../support/service.ts';

test('a table is missing, as during a restore over it → 50300, nothing stored, and not ready', async (t) => {
  const url = await postgres.freshUrl(t);
  const service = await startService(t, url);
  const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
  await execute(url, 'ALTER TABLE plants RENAME TO others');
  const plants = `${service.url}/plants`;
  for (const response of [
    await fetch(plants, { headers }),
    await fetch(plants, { headers, method: 'POST', body: '{"id":1,"name":"Alder"}' }),
    await fetch(`${plants}/1`, { headers, method: 'DELETE' }),
  ]) {
    assert.deepEqual([response.status, response.headers.get('retry-after')], [503, '1']);
    const { error, message } = (await response.json()) as { error: number; message: string };
    assert.equal(error, 50300);
    assert.doesNotMatch(message, /unknown|may have/);
  }
  const unready = await fetch(`${service.adminUrl}/ready`);
  assert.equal(unready.status, 503);
  assert.match(await unready.text(), /relation .*plants.* does not exist/);

  await execute(url, 'ALTER TABLE others RENAME TO plants');
  assert.equal((await fetch(plants, { headers })).status, 200);
  assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
});

describe('a key of a table is missing, as after a restore without it', () => {
  for (const [removal, key] of [
    ['ALTER TABLE plants DROP CONSTRAINT plants_pkey', 'plants (owner, id)'],
    ['ALTER TABLE idempotency_keys DROP CONSTRAINT idempotency_keys_pkey', 'idempotency_keys (owner, key)'],
    ['DROP INDEX tokens_by_digest', 'tokens (digest)'],
    ['DROP INDEX tokens_by_id', 'tokens (id)'],
  ] as const)
    test(`${key} → \`check\` and /ready name it, until it is there again`, async (t) => {
      const url = await postgres.freshUrl(t);
      // With it, the server quotes the names of columns.
      await execute(url, `ALTER DATABASE ${new URL(url).pathname.slice(1)} SET quote_all_identifiers = on`);
      const service = await startService(t, url);
      const bulk = await openBulk(url, connections);
      t.after(() => bulk.close());
      const state = async () => {
        const ready = await fetch(`${service.adminUrl}/ready`);
        const { damages } = await bulk.inspect();
        return { damages, status: ready.status, text: await ready.text() };
      };
      assert.deepEqual(await bulk.inspect(), { damages: [] });
      await execute(url, removal);
      const { damages, status, text } = await state();
      assert.equal(status, 503);
      assert.equal(damages.length, 1);
      for (const message of [damages[0] ?? '', text])
        assert.match(message, new RegExp(`unique index.* on ${key.replaceAll(/[()]/g, '[$&]')};`));

      // None of these makes all values unique. The last is what a failed CREATE UNIQUE INDEX CONCURRENTLY leaves.
      await execute(
        url,
        `CREATE INDEX ON ${key}; CREATE UNIQUE INDEX ON ${key} WHERE owner <> 'alice';
         CREATE UNIQUE INDEX unfinished ON ${key};
         UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'unfinished'::regclass`,
      );
      assert.equal((await state()).status, 503);
      await execute(url, `CREATE UNIQUE INDEX ON ${key}`);
      const { damages: none, status: ok } = await state();
      assert.deepEqual([none, ok], [[], 200]);
    });
});

test('keys of several tables are missing → one message names all', async (t) => {
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  await execute(
    url,
    'ALTER TABLE plants DROP CONSTRAINT plants_pkey; DROP INDEX tokens_by_digest, tokens_by_id',
  );
  const bulk = await openBulk(url, connections);
  t.after(() => bulk.close());
  const [fault, ...more] = (await bulk.inspect()).damages;
  assert.match(fault ?? '', /on plants \(owner, id\), tokens \(digest\), tokens \(id\);/);
  assert.deepEqual(more, []);
});

/** A migrated store, and a function that returns the faults which `check` reports. */
async function openChecked(t: TestContext) {
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  const bulk = await openBulk(url, connections);
  t.after(() => bulk.close());
  return { url, faults: async () => (await bulk.inspect()).damages };
}

/** A trigger function that changes nothing. */
const NOTE = 'CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NEW; END$$';

describe('a part of the schema is missing or changed → `check` names it', () => {
  for (const [change, ...expected] of [
    [
      'ALTER TABLE plants RENAME TO moved; DROP TABLE idempotency_keys',
      'the table plants is missing',
      'the table idempotency_keys is missing',
    ],
    ['ALTER TABLE plants DROP COLUMN tag', 'the column plants.tag is missing: `tag text`'],
    ['ALTER TABLE plants ALTER tag TYPE varchar(9)', 'the column plants.tag differs from `tag text`'],
    ['ALTER TABLE plants ALTER id TYPE numeric', 'the column plants.id differs from `id bigint NOT NULL`'],
    ['ALTER TABLE plants ALTER tag SET NOT NULL', 'the column plants.tag differs from `tag text`'],
    [
      'ALTER TABLE plants ALTER name DROP NOT NULL',
      'the column plants.name differs from `name text NOT NULL`',
    ],
    [
      "ALTER TABLE plants DROP tag, ADD tag text GENERATED ALWAYS AS ('x') STORED",
      'the column plants.tag differs from `tag text`',
    ],
    [
      'ALTER TABLE tokens ALTER created_at ADD GENERATED ALWAYS AS IDENTITY',
      'the column tokens.created_at differs from `created_at bigint NOT NULL`',
    ],
    [
      `CREATE COLLATION one_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
       ALTER TABLE plants ALTER owner TYPE text COLLATE one_case, ALTER name TYPE text COLLATE one_case`,
      'the column plants.owner differs from `owner text NOT NULL`',
    ],
    ['ALTER TABLE plants ADD place text NOT NULL', 'the column plants.place is not part of a store'],
    [
      'ALTER TABLE tokens SET UNLOGGED',
      'the table tokens is unlogged, so a crash empties it: `ALTER TABLE tokens SET LOGGED;`',
    ],
    [
      'DROP INDEX idempotency_keys_by_age',
      'the index idempotency_keys_by_age is missing: `CREATE INDEX idempotency_keys_by_age ON idempotency_keys (first_used_at);`',
    ],
    [
      // The state of an index that CREATE INDEX CONCURRENTLY left unfinished.
      "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idempotency_keys_by_age'::regclass",
      'the index idempotency_keys_by_age is missing: `CREATE INDEX idempotency_keys_by_age ON idempotency_keys (first_used_at);`',
    ],
    [
      `${NOTE}; CREATE TRIGGER shorten BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION note();
       CREATE TRIGGER "Keep" AFTER DELETE ON tokens EXECUTE FUNCTION note()`,
      'the trigger Keep on tokens is not part of a store',
      'the trigger shorten on plants is not part of a store',
    ],
    [
      `${NOTE}; CREATE TRIGGER keep BEFORE UPDATE ON tokens FOR EACH ROW EXECUTE FUNCTION note();
       ALTER TABLE tokens ENABLE ALWAYS TRIGGER keep`,
      'the trigger keep on tokens is not part of a store',
    ],
    [
      'ALTER TABLE plants DROP CONSTRAINT plants_pkey, ADD CONSTRAINT late UNIQUE (owner, id) DEFERRABLE',
      'the deferrable unique index late on plants is not part of a store',
    ],
    [
      'CREATE RULE keep AS ON DELETE TO plants DO INSTEAD NOTHING',
      'the rule keep on plants is not part of a store',
    ],
    [
      `CREATE RULE keep AS ON UPDATE TO tokens DO INSTEAD NOTHING;
       ALTER TABLE tokens ENABLE ALWAYS RULE keep`,
      'the rule keep on tokens is not part of a store',
    ],
    [
      "ALTER TABLE plants ADD CHECK (name <> 'x')",
      'the constraint plants_name_check on plants is not part of a store',
    ],
    [
      `CREATE TABLE owners (name text PRIMARY KEY); ALTER TABLE plants ADD CONSTRAINT of_owner
         FOREIGN KEY (owner) REFERENCES owners ON DELETE CASCADE`,
      'the constraint of_owner on plants is not part of a store',
    ],
    [
      `CREATE TABLE places (owner text, id bigint, CONSTRAINT of_plant FOREIGN KEY (owner, id) REFERENCES plants)`,
      'the constraint of_plant on plants is not part of a store',
    ],
    [
      "ALTER TABLE plants ADD CONSTRAINT idempotency_keys_outcome_check CHECK (name <> 'created')",
      'the constraint idempotency_keys_outcome_check on plants is not part of a store',
    ],
    [
      'ALTER TABLE plants ADD parent bigint, ADD CONSTRAINT of_parent FOREIGN KEY (owner, parent) REFERENCES plants',
      'the constraint of_parent on plants is not part of a store',
    ],
    [
      'CREATE UNIQUE INDEX by_name ON plants (id, name)',
      'the unique index by_name on plants is not part of a store',
    ],
    ['CREATE TABLE more () INHERITS (plants)', 'the child table more on plants is not part of a store'],
  ] as const)
    test(`${expected[0].slice(0, 60)}, after ${change.trim().slice(0, 50)}`, async (t) => {
      const { url, faults } = await openChecked(t);
      await execute(url, change);
      assert.deepEqual(await faults(), expected);
    });
});

test('each column that the migrations create → `check` names it when it is missing', async (t) => {
  const { url, faults } = await openChecked(t);
  const columns = await rowsOf(
    url,
    `SELECT relname AS of, attname AS column, attnotnull AS is_needed FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid
      WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0`,
  );
  assert.ok(columns.length > 15);
  // Without a column `name`, the table of migrations counts as that of another program.
  for (const { of, column, is_needed: isNeeded } of columns.filter((row) => row.of !== 'migrations')) {
    await execute(url, `ALTER TABLE ${of} RENAME ${column} TO moved`);
    const found = (await faults()).map((fault) => fault.replace(/:.*/, ''));
    assert.ok(found.includes(`the column ${of}.${column} is missing`), `${of}.${column}: ${found.join()}`);
    assert.equal(found.includes(`the column ${of}.moved is not part of a store`), isNeeded);
    await execute(url, `ALTER TABLE ${of} RENAME moved TO ${column}`);
  }
  assert.deepEqual(await faults(), []);
});

test('changes of the schema that do not change what is stored → sound', async (t) => {
  const { url, faults } = await openChecked(t);
  await execute(
    url,
    `ALTER TABLE plants ADD place text, ADD planted_at timestamptz NOT NULL DEFAULT now(),
       ADD number bigint GENERATED ALWAYS AS IDENTITY, ADD length int GENERATED ALWAYS AS (length(tag)) STORED;
     ALTER TABLE plants ALTER tag SET DEFAULT 'x', ALTER name TYPE text COLLATE "C", ALTER tag SET STORAGE EXTERNAL;
     CREATE INDEX ON plants (name); CREATE TABLE notes (id int); CREATE VIEW names AS SELECT name FROM plants;
     COMMENT ON TABLE plants IS 'plants';
     DROP INDEX idempotency_keys_by_age; CREATE INDEX by_age ON idempotency_keys (first_used_at DESC, owner);
     CREATE UNIQUE INDEX ON plants (owner, id, name); CREATE UNIQUE INDEX ON tokens (owner, digest);
     ALTER TABLE idempotency_keys RENAME CONSTRAINT idempotency_keys_outcome_check TO checked;
     DROP INDEX tokens_by_id; ALTER TABLE tokens ADD UNIQUE (id) DEFERRABLE;
     ${NOTE};
     CREATE TRIGGER truncated AFTER TRUNCATE ON plants EXECUTE FUNCTION note();
     CREATE TRIGGER disabled BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION note();
     CREATE RULE disabled AS ON INSERT TO plants DO INSTEAD NOTHING;
     ALTER TABLE plants DISABLE TRIGGER disabled, DISABLE RULE disabled;
     CREATE TRIGGER other BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION note()`,
  );
  assert.deepEqual(await faults(), []);
});

describe('a library sorts differently since the indexes were made → `check` names the repair', () => {
  /** A store in a database that sorts by ICU. */
  async function openSorted(t: TestContext) {
    const url = new URL(String(process.env.TEST_DATABASE_URL));
    const server = url.href;
    const name = `test_${randomBytes(8).toString('hex')}`;
    const locale = `LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'`;
    await execute(server, `CREATE DATABASE ${name} TEMPLATE template0 STRATEGY file_copy ${locale}`);
    t.after(() => execute(server, `DROP DATABASE ${name} WITH (FORCE)`));
    url.pathname = `/${name}`;
    await migrateStore(url.href);
    const bulk = await openBulk(url.href, connections);
    t.after(() => bulk.close());
    return { url: url.href, name, faults: async () => (await bulk.inspect()).damages };
  }

  const faultOf = (object: string) =>
    new RegExp(
      `^the collation of the keys was 1\\.0 and is now \\S+, so rows may be missed or stored twice: run \`REINDEX TABLE CONCURRENTLY …;\` for each table, then \`ALTER ${object} REFRESH COLLATION VERSION;\`$`,
    );

  test('the collation of the database → the service also logs the warning of PostgreSQL', async (t) => {
    const { url, name, faults } = await openSorted(t);
    assert.deepEqual(await faults(), []);
    // Another account could make this function, which fits better than that of the system (CVE-2018-1058).
    await execute(url, "CREATE FUNCTION quote_ident(name) RETURNS text RETURN 'another'");
    await execute(url, `UPDATE pg_database SET datcollversion = '1.0' WHERE datname = '${name}'`);
    const [fault = '', ...others] = await faults();
    assert.match(fault, faultOf(`DATABASE ${name}`));
    assert.deepEqual(others, []);
    const warnings: string[] = [];
    const store = await openStore(url, {
      now: Date.now,
      connections,
      onFatal: assert.fail,
      onDatabaseWarning: (warning) => void warnings.push(warning),
    });
    t.after(() => store.close());
    await store.ping();
    assert.match(warnings[0] ?? '', /collation version mismatch: .*REFRESH COLLATION VERSION/);
    await execute(url, `ALTER DATABASE ${name} REFRESH COLLATION VERSION`);
    assert.deepEqual(await faults(), []);
  });

  test('a collation of a column', async (t) => {
    const { url, faults } = await openSorted(t);
    await execute(
      url,
      `CREATE SCHEMA other;
       CREATE COLLATION other."German" (provider = icu, locale = 'de-DE', version = '1.0');
       ALTER TABLE plants ALTER owner TYPE text COLLATE other."German";
       ALTER TABLE tokens ALTER name TYPE text COLLATE other."German"`,
    );
    const [fault = '', ...others] = await faults();
    assert.match(fault, faultOf('COLLATION other\\."German"'));
    assert.deepEqual(others, []);
  });
});

test('plants in partitions → sound, and what is wrong with the table or one of them is named', async (t) => {
  const { url, faults } = await openChecked(t);
  await execute(
    url,
    `ALTER TABLE plants RENAME TO whole;
     CREATE TABLE plants (LIKE whole INCLUDING ALL) PARTITION BY HASH (owner);
     CREATE TABLE plants_0 PARTITION OF plants FOR VALUES WITH (MODULUS 2, REMAINDER 0);
     CREATE TABLE plants_1 PARTITION OF plants FOR VALUES WITH (MODULUS 2, REMAINDER 1)`,
  );
  assert.deepEqual(await faults(), []);
  await execute(
    url,
    `${NOTE}; CREATE TRIGGER shorten BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION note();
     CREATE TRIGGER keep BEFORE DELETE ON plants_1 FOR EACH ROW EXECUTE FUNCTION note();
     ALTER TABLE plants ADD CONSTRAINT short CHECK (length(name) < 9);
     CREATE UNIQUE INDEX by_name ON plants_0 (name);
     ALTER TABLE plants_1 SET UNLOGGED`,
  );
  assert.deepEqual(await faults(), [
    'the constraint short on plants is not part of a store',
    'the table plants_1 is unlogged, so a crash empties it: `ALTER TABLE plants_1 SET LOGGED;`',
    'the trigger keep on plants_1 is not part of a store',
    'the trigger shorten on plants is not part of a store',
    'the unique index by_name on plants_0 is not part of a store',
  ]);
});
