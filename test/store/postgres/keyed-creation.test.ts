import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { isUniqueViolation } from '../../../src/store/postgres/errors.ts';
import { migratePostgres } from '../../../src/store/postgres/migrate.ts';
import { claimKeys, createNewPlants, createPlants } from '../../../src/store/postgres/statements.ts';
import type { Store } from '../../../src/store/store.ts';
import {
  deadlocksIn,
  execute,
  OTHER_SESSIONS,
  connections as options,
  postgres,
  rowsOf,
} from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';
import { countOf, create, createOnce, remove, writeAll } from '../../support/store-setup.ts';

const STORED = `SELECT 'key' AS kind, key AS name FROM idempotency_keys
                UNION ALL SELECT 'plant', id::text FROM plants ORDER BY 1, 2`;

/** Opens a store on a new database. `statements` returns the kinds of statements since the last call. */
async function openWatched(
  t: TestContext,
): Promise<{ url: string; store: Store; statements: () => string[] }> {
  const url = new URL(await postgres.freshUrl(t));
  const sent: string[] = [];
  const proxy = await startTcpProxy(t, Number(url.port), (bytes) => void sent.push(bytes.toString('latin1')));
  const store = await openStore(`postgres://postgres@127.0.0.1:${proxy.port}${url.pathname}`, {
    now: Date.now,
    connections: options,
    onFatal: assert.fail,
  });
  t.after(() => store.close());
  const statements = () => {
    const texts = sent.splice(0).join('');
    return [...new Set(texts.match(/BEGIN|claim-keys|create-(?:new-)?plants(?:-and-keys)?|COMMIT/g))];
  };
  statements();
  return { url: url.href, store, statements };
}

const OPTIMISTIC = ['create-new-plants-and-keys'];
const IN_TRANSACTION = ['BEGIN', 'claim-keys', 'create-plants', 'COMMIT'];

test('plants and idempotency keys that are all new → one statement, in which a conflict stores nothing', async (t) => {
  const { url, store, statements } = await openWatched(t);
  assert.deepEqual(await writeAll(store, [createOnce(1n, 'a'), create(2n), createOnce(3n, 'b')]), [
    'created',
    'created',
    'created',
  ]);
  assert.deepEqual(statements(), OPTIMISTIC);
  const others = [
    createOnce(4n, 'c'),
    createOnce(1n, 'd'),
    createOnce(3n, 'b'),
    createOnce(5n, 'a'),
    create(2n),
  ];
  assert.deepEqual(await writeAll(store, others), [
    'created',
    'idTaken',
    'createdReplayed',
    'keyReused',
    'idTaken',
  ]);
  assert.deepEqual(statements(), [...OPTIMISTIC, ...IN_TRANSACTION]);
  assert.deepEqual(await rowsOf(url, STORED), [
    ...['a', 'b', 'c'].map((name) => ({ kind: 'key', name })),
    ...['1', '2', '3', '4'].map((name) => ({ kind: 'plant', name })),
  ]);
});

test('new plants and keys next to deletions → the same statement in a transaction, which a conflict rolls back and repeats', async (t) => {
  const { url, store, statements } = await openWatched(t);
  assert.deepEqual(await writeAll(store, [create(1n), create(2n), create(3n)]), Array(3).fill('created'));
  statements();
  assert.deepEqual(await writeAll(store, [createOnce(4n, 'a'), remove(1n), remove(9n)]), [
    'created',
    'deleted',
    'absent',
  ]);
  assert.deepEqual(statements(), ['BEGIN', ...OPTIMISTIC, 'COMMIT']);
  const others = [createOnce(5n, 'b'), createOnce(6n, 'a'), create(2n), remove(3n), remove(4n)];
  assert.deepEqual(await writeAll(store, others), ['created', 'keyReused', 'idTaken', 'deleted', 'deleted']);
  assert.deepEqual(statements(), ['BEGIN', ...OPTIMISTIC, 'claim-keys', 'create-plants', 'COMMIT']);
  assert.deepEqual(await rowsOf(url, STORED), [
    ...['a', 'b'].map((name) => ({ kind: 'key', name })),
    ...['2', '5'].map((name) => ({ kind: 'plant', name })),
  ]);
});

test('a creation is repeated → for a second, those with keys run in transactions, and others in one statement', async (t) => {
  const { store, statements } = await openWatched(t);
  assert.equal(await store.write(createOnce(1n, 'a')), 'created');
  assert.equal(await store.write(createOnce(1n, 'a')), 'createdReplayed');
  statements();
  assert.equal(await store.write(create(2n)), 'created');
  assert.deepEqual(statements(), ['create-new-plants']);
  assert.equal(await store.write(createOnce(3n, 'b')), 'created');
  assert.deepEqual(statements(), IN_TRANSACTION);
  let id = 4n;
  await until(async () => {
    assert.equal(await store.write(createOnce(id, `${id}`)), 'created');
    id += 1n;
    return statements().includes('create-new-plants-and-keys');
  });
});

test('the server does not know the one statement → it gets it once, and creates in transactions', async (t) => {
  const { url, store, statements } = await openWatched(t);
  // A sequence also counts rolled-back work.
  await execute(
    url,
    `CREATE SEQUENCE tries;
     CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
       IF nextval('tries') = 1 THEN RAISE EXCEPTION 'not supported' USING ERRCODE = '0A000'; END IF;
       RETURN NULL;
     END$$;
     CREATE TRIGGER reject BEFORE INSERT ON idempotency_keys FOR EACH STATEMENT EXECUTE FUNCTION reject()`,
  );
  statements();
  assert.equal(await store.write(createOnce(1n, 'a')), 'created');
  assert.deepEqual(statements(), [...OPTIMISTIC, ...IN_TRANSACTION]);
  assert.equal(await store.write(createOnce(2n, 'b')), 'created');
  assert.deepEqual(statements(), IN_TRANSACTION);
});

for (const [where, others] of [
  ['one statement', []],
  ['a transaction', [{ kind: 'recordTokenUse', id: 'unknown', at: 1 } as const]],
] as const)
  test(`the unique index on keys is missing, as during a restore → no creation with a key, in ${where}`, async (t) => {
    const { url, store } = await openWatched(t);
    assert.equal(await store.write(createOnce(1n, 'a')), 'created');
    await execute(url, 'ALTER TABLE idempotency_keys DROP CONSTRAINT idempotency_keys_pkey');
    for (const creation of [createOnce(2n, 'b'), createOnce(1n, 'a')])
      await assert.rejects(writeAll(store, [creation, ...others]), /42P10/);
    assert.deepEqual(await rowsOf(url, STORED), [
      { kind: 'key', name: 'a' },
      { kind: 'plant', name: '1' },
    ]);
  });

test('a key of a transaction that is not committed yet → the one statement waits before it locks a plant', async (t) => {
  const url = await postgres.freshUrl(t);
  await migratePostgres(url);
  const connections = new Connections(url, options);
  t.after(() => connections.close());
  const creations = [
    { ...create(1n), idempotencyKey: 'a' },
    { ...create(2n), idempotencyKey: 'b' },
  ];
  const optimistic = await connections.use(async (connection) => {
    await connection.query({ text: 'BEGIN' });
    await connection.query(claimKeys(creations.slice(1)));
    const other = connections.query(createNewPlants(creations)).catch((error: unknown) => error);
    await until(
      async () => (await rowsOf(url, `SELECT ${OTHER_SESSIONS} AND wait_event_type = 'Lock'`)).length > 0,
    );
    // A deadlock if the other one had inserted plants.
    assert.equal((await connection.query(createPlants(creations))).length, 2);
    await connection.query({ text: 'COMMIT' });
    return { error: await other };
  });
  assert.ok(isUniqueViolation(optimistic.error), String(optimistic.error));
  assert.deepEqual(await rowsOf(url, STORED), [
    { kind: 'key', name: 'b' },
    { kind: 'plant', name: '1' },
    { kind: 'plant', name: '2' },
  ]);
});

test('two instances get the same creations with keys, in opposite orders → each once, and the first response again', async (t) => {
  const url = await postgres.freshUrl(t);
  await migratePostgres(url);
  // Slows the statements down, so that they run at the same time.
  await execute(
    url,
    `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
       $$BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END$$;
     CREATE TRIGGER slow BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION slow();
     CREATE TRIGGER slow BEFORE INSERT ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION slow()`,
  );
  for (let round = 0; round < 5; round += 1) {
    const creations = Array.from({ length: 20 }, (_, id) =>
      createOnce(BigInt(id), `${id}`, 'a plant', `owner-${round}`),
    );
    await using opened = new AsyncDisposableStack();
    // New stores in each round: after a conflict, a store stops optimistic inserts for a second.
    const open = async () => {
      const store = await openStore(url, { now: Date.now, connections: options, onFatal: assert.fail });
      opened.defer(() => store.close());
      return store;
    };
    const [one, other] = [await open(), await open()];
    const outcomes = await Promise.all([writeAll(one, creations), writeAll(other, creations.toReversed())]);
    assert.equal(countOf(outcomes.flat(), 'created'), creations.length);
    assert.equal(countOf(outcomes.flat(), 'createdReplayed'), creations.length);
  }
  assert.equal(await deadlocksIn(url), 0);
});
