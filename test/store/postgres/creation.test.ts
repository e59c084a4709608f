import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import {
  NothingStored,
  type Outcome,
  type Store,
  StoreDamaged,
  StoreUnavailable,
  type Write,
} from '../../../src/store/store.ts';
import { deadlocksIn, execute, connections as options, postgres, rowsOf } from '../../support/engines.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';
import {
  countOf,
  createOnce,
  create as creation,
  remove,
  upTo,
  writeAll,
} from '../../support/store-setup.ts';

const TRIES = 300;
const ROUNDS = 5;

/** A write without effect. With it, a batch with an idempotency key is a transaction, not one statement. */
const OTHER_WRITE: Write = { kind: 'recordTokenUse', id: 'unknown', at: 1 };

async function openFresh(t: TestContext): Promise<{ url: string; store: Store }> {
  const url = await postgres.freshUrl(t);
  const store = await openStore(url, { now: Date.now, connections: options, onFatal: assert.fail });
  t.after(() => store.close());
  return { url, store };
}

test('ids taken → PostgreSQL rejects a batch and logs an error, up to once a second', async (t) => {
  const { url, store } = await openFresh(t);
  const database = new Connections(url, options);
  t.after(() => database.close());
  // A sequence also counts rolled-back work.
  await database.query({
    text: `CREATE SEQUENCE statements;
           CREATE FUNCTION count_statement() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN PERFORM nextval('statements'); RETURN NULL; END$$;
           CREATE TRIGGER count_statements BEFORE INSERT ON plants
             FOR EACH STATEMENT EXECUTE FUNCTION count_statement()`,
  });
  const create = (id: number): Promise<Outcome> => store.write(creation(BigInt(id)));

  assert.equal(await create(1), 'created');
  const begun = performance.now();
  const some = await Promise.all([2, 1, 3].map(create));
  assert.deepEqual(some, ['created', 'idTaken', 'created'], 'nothing of a rejected batch is lost');
  for (let tries = 0; tries < TRIES; tries += 1) assert.equal(await create(1), 'idTaken');
  const seconds = (performance.now() - begun) / 1_000;

  const [row] = await database.query({ text: 'SELECT last_value FROM statements' });
  const rejected = Number(row?.last_value) - 1 - 1 - TRIES;
  assert.ok(rejected >= 1 && rejected <= 1 + seconds, `${rejected} in ${seconds} s`);
});

test('many writes of one kind to one plant → one commit; those with one idempotency key run one by one', async (t) => {
  const batches: number[] = [];
  const store = await openStore(await postgres.freshUrl(t), {
    now: Date.now,
    connections: options,
    onFatal: assert.fail,
    onCommit: (writes) => void batches.push(writes),
  });
  t.after(() => store.close());
  const ofOneKind: readonly (readonly [readonly Write[], Outcome, Outcome])[] = [
    [[1, 2, 3, 4].map(() => creation(1n)), 'created', 'idTaken'],
    [[1, 2, 3, 4].map(() => remove(1n)), 'deleted', 'absent'],
    [[1, 2, 3, 4].map((key) => createOnce(1n, `${key}`)), 'created', 'idTaken'],
    [[...'aaaa'].map((key) => createOnce(2n, key)), 'created', 'createdReplayed'],
  ];
  for (const [writes, first, others] of ofOneKind)
    assert.deepEqual(await writeAll(store, writes), [first, others, others, others]);
  assert.deepEqual(batches, [4, 4, 4, 1, 1, 1, 1]);
});

test('the database turns array_nulls off → a plant without a tag has none', async (t) => {
  const url = await postgres.freshUrl(t);
  await execute(url, `ALTER DATABASE ${new URL(url).pathname.slice(1)} SET array_nulls = off`);
  const store = await openStore(url, { now: Date.now, connections: options, onFatal: assert.fail });
  t.after(() => store.close());
  await store.write(creation(1n, { tag: null }));
  await store.write(creation(2n, { tag: 'NULL' }));
  assert.deepEqual(await rowsOf(url, 'SELECT tag FROM plants ORDER BY id'), [{ tag: null }, { tag: 'NULL' }]);
});

test('the server rolls a batch back for another transaction → it is retried and executed once', async (t) => {
  const { url, store } = await openFresh(t);
  // The codes of a deadlock and of a serialization failure. A sequence also counts rolled-back work.
  await execute(
    url,
    `CREATE SEQUENCE tries;
     CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
       IF nextval('tries') % 4 <> 0 THEN
         RAISE EXCEPTION 'undone' USING ERRCODE = CASE lastval() % 4 WHEN 1 THEN '40P01' ELSE '40001' END;
       END IF;
       RETURN NULL;
     END$$;
     CREATE TRIGGER undo BEFORE INSERT OR DELETE ON plants FOR EACH STATEMENT EXECUTE FUNCTION undo()`,
  );
  const script: readonly (readonly [Write[], Outcome[]])[] = [
    [[creation(1n)], ['created']],
    [[{ kind: 'deletePlant', owner: 'alice', id: 1n }], ['deleted']],
    [[createOnce(1n, 'one')], ['created']],
    [
      [createOnce(2n, 'two'), OTHER_WRITE],
      ['created', 'absent'],
    ],
  ];
  for (const [writes, outcomes] of script) assert.deepEqual(await writeAll(store, writes), outcomes);
});

test('the session ends after the error of a commit, as at a panic → the outcome is unknown, without retries', async (t) => {
  const { url, store } = await openFresh(t);
  // A sequence also counts rolled-back work.
  await execute(
    url,
    `CREATE SEQUENCE commits;
     CREATE FUNCTION panic() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
       PERFORM nextval('commits');
       IF 1 / (NOT pg_terminate_backend(pg_backend_pid()))::integer = 1 THEN END IF;
       RETURN NULL;
     END$$;
     CREATE CONSTRAINT TRIGGER panic AFTER INSERT ON plants DEFERRABLE INITIALLY DEFERRED
       FOR EACH ROW EXECUTE FUNCTION panic()`,
  );
  const batches: readonly (readonly Write[])[] = [
    [creation(1n), creation(2n)],
    [createOnce(3n, 'one'), creation(4n)],
    [createOnce(5n, 'two'), OTHER_WRITE],
  ];
  for (const batch of batches)
    for (const write of await Promise.allSettled(batch.map(store.write)))
      assert.ok(
        write.status === 'rejected' &&
          write.reason instanceof StoreUnavailable &&
          !(write.reason instanceof NothingStored),
      );
  assert.deepEqual(await rowsOf(url, 'SELECT last_value::integer AS commits FROM commits'), [{ commits: 3 }]);
});

test('the connection is lost in a transaction → nothing stored, unless BEGIN has no answer or COMMIT was sent', async (t) => {
  const url = new URL(await postgres.freshUrl(t));
  const proxy = await startTcpProxy(t, Number(url.port));
  url.host = `127.0.0.1:${proxy.port}`;
  const store = await openStore(url.href, { now: Date.now, connections: options, onFatal: assert.fail });
  t.after(() => store.close());
  assert.equal(await store.write(creation(0n)), 'created');
  for (const [id, statement, isKnown] of [
    [5n, /create-new-plants-and-keys/, false],
    [1n, /BEGIN/, false],
    [2n, /claim-keys/, true],
    [3n, /create-plants/, true],
    [4n, /COMMIT/, false],
  ] as const) {
    const cut = proxy.expect(statement, 'cut after');
    // The second id is taken, so that the batch is executed again with claims of keys.
    const writes: Write[] = [createOnce(id, `${id}`), creation(0n), OTHER_WRITE];
    for (const write of await Promise.allSettled(writes.map(store.write))) {
      assert.ok(write.status === 'rejected');
      const reason: unknown = write.reason;
      assert.ok(reason instanceof StoreUnavailable, String(reason));
      assert.equal(reason instanceof NothingStored, isKnown, `${statement}: ${reason}`);
    }
    await cut;
  }
});

const MEANING = { 'for one statement': 'outcome unknown', 'in a transaction': 'nothing stored' } as const;

for (const [code, where, others] of ['53100', '57014', '58030', 'XX001'].flatMap((code) => [
  [code, 'for one statement', []] as const,
  [code, 'in a transaction', [OTHER_WRITE]] as const,
]))
  test(`the server sends ${code} ${where} → ${MEANING[where]}${code === 'XX001' ? ', but damaged' : ''}, and the session is kept`, async (t) => {
    const { url, store } = await openFresh(t);
    const write = async (creation: Write) => (await writeAll(store, [creation, ...others]))[0];
    await execute(
      url,
      `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
         IF EXISTS (SELECT FROM inserted WHERE name = 'fails') THEN
           RAISE EXCEPTION 'failed' USING ERRCODE = '${code}';
         END IF;
         RETURN NULL;
       END$$;
       CREATE TRIGGER fail AFTER INSERT ON plants REFERENCING NEW TABLE AS inserted
         FOR EACH STATEMENT EXECUTE FUNCTION fail();
       CREATE TABLE sessions (pid integer);
       CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
         INSERT INTO sessions VALUES (pg_backend_pid());
         RETURN NULL;
       END$$;
       CREATE TRIGGER note AFTER INSERT ON plants FOR EACH STATEMENT EXECUTE FUNCTION note()`,
    );
    assert.equal(await write(createOnce(1n, '1')), 'created');
    await assert.rejects(write(createOnce(2n, '2', 'fails')), (error) => {
      assert.ok(error instanceof (code === 'XX001' ? StoreDamaged : StoreUnavailable), String(error));
      return code === 'XX001' || error instanceof NothingStored === (where === 'in a transaction');
    });
    assert.equal(await write(createOnce(2n, '2')), 'created');
    const sessions = 'SELECT count(*)::integer AS writes FROM sessions GROUP BY pid';
    assert.deepEqual(await rowsOf(url, sessions), [{ writes: 2 }]);
  });

for (const [table, create, outcome, where, others] of [
  ['plants', (id: bigint) => creation(id, { name: 'Birch' }), 'idTaken'] as const,
  ['idempotency_keys', (id: bigint) => createOnce(id, `${id}`, 'Alder'), 'createdReplayed'] as const,
].flatMap((one) => [
  [...one, 'in one statement', []] as const,
  [...one, 'in a transaction', [OTHER_WRITE]] as const,
]))
  test(`unique key of ${table} violated ${where}, reported as an internal error (Citus) → ${outcome}`, async (t) => {
    const { url, store } = await openFresh(t);
    assert.equal(await store.write(createOnce(1n, '1', 'Alder')), 'created');
    await execute(
      url,
      `CREATE SEQUENCE tries;
     CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
       IF nextval('tries') = 1 THEN
         RAISE EXCEPTION 'duplicate key value violates unique constraint "${table}_pkey_102038"' USING ERRCODE = 'XX000';
       END IF;
       RETURN NULL;
     END$$;
     CREATE TRIGGER reject BEFORE INSERT ON ${table} FOR EACH STATEMENT EXECUTE FUNCTION reject()`,
    );
    const outcomes = await writeAll(store, [create(1n), create(2n), ...others]);
    assert.deepEqual(outcomes, [outcome, 'created', ...others.map(() => 'absent')]);
  });

test('other internal error of a creation → outcome unknown, and no second statement, which could find its own plant', async (t) => {
  const { url, store } = await openFresh(t);
  await execute(
    url,
    `CREATE SEQUENCE tries;
     CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
       PERFORM nextval('tries');
       RAISE EXCEPTION 'Timed out' USING ERRCODE = 'XX000';
     END$$;
     CREATE TRIGGER reject BEFORE INSERT ON plants FOR EACH STATEMENT EXECUTE FUNCTION reject()`,
  );
  await assert.rejects(store.write(creation(1n)), (error) => {
    return error instanceof StoreUnavailable && !(error instanceof NothingStored);
  });
  assert.deepEqual(await rowsOf(url, 'SELECT last_value FROM tries'), [{ last_value: '1' }]);
});

test('two instances insert the same plants optimistically → each plant is created once', async (t) => {
  const url = await postgres.freshUrl(t);
  const ids = Array.from({ length: 100 }, (_, index) => BigInt(index));
  for (let round = 0; round < ROUNDS; round += 1) {
    // New stores in each round: after a taken id, a store stops optimistic inserts for a second.
    const stores = await Promise.all(
      ['Alder', 'Birch'].map(async (name) => {
        const store = await openStore(url, { now: Date.now, connections: options, onFatal: assert.fail });
        t.after(() => store.close());
        return { name, store };
      }),
    );
    const owner = `owner-${round}`;
    const tries = await Promise.all(
      stores.flatMap(({ name, store }, index) =>
        (index === 0 ? ids : ids.toReversed()).map(async (id) => {
          return { id, name, outcome: await store.write(creation(id, { owner, name })) };
        }),
      ),
    );
    const created = tries.filter(({ outcome }) => outcome === 'created').sort((a, b) => Number(a.id - b.id));
    assert.deepEqual(
      created.map(({ id }) => id),
      ids,
    );
    for (const { outcome } of tries) assert.ok(outcome === 'created' || outcome === 'idTaken', outcome);
    for (const { store } of stores) {
      const { json } = await store.listPlants(owner, { from: 0n, to: 99n }, upTo(100));
      assert.equal(json, JSON.stringify(created.map(({ name }) => ({ name }))));
    }
  }
});

test('two instances insert the same plants in opposite orders → no deadlock', async (t) => {
  const url = await postgres.freshUrl(t);
  const ids = Array.from({ length: 10 }, (_, index) => BigInt(index));
  {
    await using opened = new AsyncDisposableStack();
    const open = async () => {
      const store = await openStore(url, { now: Date.now, connections: options, onFatal: assert.fail });
      opened.defer(() => store.close());
      return store;
    };
    const [one, other] = [await open(), await open()];
    // Slows the statements down, so that they run at the same time.
    await execute(
      url,
      `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
         $$BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END$$;
       CREATE TRIGGER slow BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION slow()`,
    );
    const outcomes = await Promise.all([
      ...ids.map((id) => one.write(creation(id))),
      ...ids.toReversed().map((id) => other.write(creation(id))),
    ]);
    assert.equal(countOf(outcomes, 'created'), ids.length);
    assert.equal(countOf(outcomes, 'idTaken'), ids.length);
  }
  assert.equal(await deadlocksIn(url), 0);
});
