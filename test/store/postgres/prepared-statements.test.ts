import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { commitBatch } from '../../../src/store/postgres/batch.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { isAcrossShards } from '../../../src/store/postgres/errors.ts';
import { deleteExpiredKeys } from '../../../src/store/postgres/expired-keys.ts';
import { migratePostgres } from '../../../src/store/postgres/migrate.ts';
import { createPageReader, readLargePlant } from '../../../src/store/postgres/pages.ts';
import { type Connection, createNewPlants } from '../../../src/store/postgres/statements.ts';
import { createTokenLookup, findTokenById } from '../../../src/store/postgres/token-lookup.ts';
import { NothingStored, StoreUnavailable, type Write } from '../../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../../src/token.ts';
import { execute, connections as options, postgres } from '../../support/engines.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';
import { create, createOnce, EVERY_ID, remove, upTo } from '../../support/store-setup.ts';

const creation = createOnce(1n, 'one');

/** Opens connections to a new store. */
async function openMigrated(t: TestContext): Promise<Connections> {
  const url = await postgres.freshUrl(t);
  await migratePostgres(url);
  const connections = new Connections(url, options);
  t.after(() => connections.close());
  return connections;
}

test('BEGIN and COMMIT are not prepared, so that they cannot fail alone', async (t) => {
  const connections = await openMigrated(t);
  assert.deepEqual(await commitBatch(connections, [creation], 'allOwners'), ['created']);
  const text = 'SELECT statement FROM pg_prepared_statements ORDER BY statement';
  const prepared = await connections.query({ text });
  const verbs = prepared.map(({ statement }) => String(statement).split(/\s/, 1)[0]);
  assert.deepEqual(verbs.sort(), ['INSERT', 'INSERT']);
});

/** Connections on which each BEGIN fails. */
function withoutBegin(connections: Connections): Pick<Connections, 'use'> {
  return {
    use: (work) =>
      connections.use((connection) =>
        work({
          query: (statement) =>
            connection.query(statement.text === 'BEGIN' ? { text: 'SELECT 1 / 0' } : statement),
        }),
      ),
  };
}

test('only BEGIN fails → a batch with an idempotency key stores neither the key nor the plant', async (t) => {
  const connections = await openMigrated(t);
  await assert.rejects(commitBatch(withoutBegin(connections), [creation], 'allOwners'), StoreUnavailable);
  const text = 'SELECT key FROM idempotency_keys UNION ALL SELECT name FROM plants';
  assert.deepEqual(await connections.query({ text }), []);
});

test('only BEGIN fails → the outcome of a batch is unknown, also if a plant that was to be new exists', async (t) => {
  const connections = await openMigrated(t);
  assert.deepEqual(await commitBatch(connections, [create(1n), create(2n)], 'allNew'), [
    'created',
    'created',
  ]);
  await assert.rejects(
    commitBatch(withoutBegin(connections), [create(1n), remove(2n)], 'allNew'),
    (error) => error instanceof StoreUnavailable && !(error instanceof NothingStored),
  );
});

test('a batch of one owner → no statement that may read all rows of the owner', async (t) => {
  const connections = await openMigrated(t);
  for (let time = 0; time < 2; time += 1)
    await commitBatch(
      connections,
      [createOnce(1n, 'kept'), createOnce(1n, 'taken'), remove(2n)],
      'allOwners',
    );
  const text = 'SELECT name FROM pg_prepared_statements ORDER BY name';
  const names = (await connections.query({ text })).map(({ name }) => name);
  assert.deepEqual(names, ['claim-keys', 'create-plants', 'delete-plants', 'find-keys', 'remove-keys']);
});

test('a prepared statement is planned once, not at each call', async (t) => {
  const connections = await openMigrated(t);
  for (const id of [1n, 2n, 3n]) await commitBatch(connections, [create(id)], 'allOwners');
  const text = 'SELECT custom_plans, generic_plans FROM pg_prepared_statements';
  const plans = await connections.query({ text });
  assert.deepEqual(plans, [{ custom_plans: '0', generic_plans: '3' }]);
});

/** Executes each prepared statement of the service in the one session of `connections`. Resolves to their names. */
async function prepareAll(connections: Connections): Promise<readonly string[]> {
  const commit = async (...batch: readonly Write[]) => {
    for (const mode of ['allOwners', 'perOwner'] as const) await commitBatch(connections, batch, mode);
  };
  const read = connections.read.bind(connections);
  const at = Date.now();
  const token = newToken(mintSecret(), 'alice', { scopes, expiresAt: null, name: 'test' }, at);
  await connections.query(createNewPlants([create(1n)]));
  await connections.query(createNewPlants([create(4n), createOnce(5n, 'new')]));
  await commitBatch(connections, [{ kind: 'createToken', token }], 'allOwners');
  await commit(create(2n), createOnce(3n, 'kept'), remove(9n));
  await commit(createOnce(3n, 'kept'), createOnce(2n, 'taken'));
  await commit({ kind: 'recordTokenUse', id: token.id, at }, { kind: 'revokeToken', id: 'unknown', at });
  const readPage = createPageReader(read);
  await readPage('alice', EVERY_ID, { plants: 100, bytes: 8 });
  await Promise.all(Array.from({ length: 8 }, () => readPage('alice', EVERY_ID, upTo(20))));
  await readLargePlant(read, 'alice', EVERY_ID);
  await createTokenLookup(read)(token.digest);
  await findTokenById(read, token.id);
  await deleteExpiredKeys(connections, at + 3_600_000, true);
  await deleteExpiredKeys(connections, at + 3_600_000, false);
  const rows = await connections.query({ text: 'SELECT name FROM pg_prepared_statements ORDER BY name' });
  return rows.map(({ name }) => String(name));
}

interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Cond'?: string;
  readonly Plans?: readonly PlanNode[];
}

/** Returns the nodes of the plan of a prepared statement that read a table. */
async function findScans(connection: Connection, name: string): Promise<readonly PlanNode[]> {
  const [statement] = await connection.query({
    text: 'SELECT cardinality(parameter_types) AS count FROM pg_prepared_statements WHERE name = $1',
    values: [name],
  });
  const values = Array(Number(statement?.count)).fill('NULL').join(', ');
  const [row] = await connection.query({ text: `EXPLAIN (FORMAT JSON) EXECUTE "${name}" (${values})` });
  const plans = row?.['QUERY PLAN'] as readonly { readonly Plan: PlanNode }[] | undefined;
  const nodesIn = (node: PlanNode): readonly PlanNode[] => [node, ...(node.Plans ?? []).flatMap(nodesIn)];
  const nodes = (plans ?? []).flatMap(({ Plan }) => nodesIn(Plan));
  return nodes.filter((node) => node['Relation Name'] && node['Node Type'] !== 'ModifyTable');
}

/** The columns by which an index finds the rows of a table: all columns of its key, or another index. */
const INDEX_CONDITIONS: Readonly<Record<string, RegExp>> = {
  plants: /\bowner = .*\bid (=|>|<)/,
  idempotency_keys: /\bowner = .*\bkey (=|>|<)|^\(\(first_used_at >= /,
  tokens: /^\((id|digest) = /,
};

for (const [state, rows] of [
  ['new', 0],
  ['vacuumed', 0],
  ['of one row', 1],
  ['of 30 rows', 30],
] as const)
  test(`statements are planned while the tables are small (${state}) → they find rows by whole keys`, async (t) => {
    const url = await postgres.freshUrl(t);
    await migratePostgres(url);
    const connections = new Connections(url, { ...options, poolSize: 1 });
    t.after(() => connections.close());
    const names = await prepareAll(connections);
    assert.deepEqual(names, [
      'claim-keys',
      'create-new-plants',
      'create-new-plants-and-keys',
      'create-plants',
      'create-tokens',
      'delete-keys',
      'delete-keys-of-owner',
      'delete-plants',
      'delete-plants-of-owner',
      'find-keys',
      'find-keys-of-owner',
      'find-old-keys',
      'find-token-by-id',
      'find-tokens-by-digest',
      'list-large-plants',
      'list-plants',
      'list-plants-of-several',
      'read-large-plant',
      'record-token-use',
      'remove-keys',
      'remove-keys-of-owner',
      'revoke-token',
    ]);
    await execute(url, 'TRUNCATE plants, idempotency_keys, tokens');
    const numbers = `generate_series(1, ${rows}) AS number`;
    await execute(url, `INSERT INTO plants (owner, id, name) SELECT 'alice', number, 'a' FROM ${numbers}`);
    await execute(
      url,
      `INSERT INTO idempotency_keys (owner, key, digest, outcome, first_used_at)
       SELECT 'alice', number, '', 'created', number FROM ${numbers}`,
    );
    if (state !== 'new') await execute(url, 'VACUUM ANALYZE');
    const [server] = await connections.query({
      text: "SELECT current_setting('server_version_num')::integer < 170000 AS is_old",
    });
    const isOld = server?.is_old === true;
    const others: string[] = [];
    await connections.use(async (connection) => {
      for (const name of names) {
        // An older server may compare their list of keys with all rows of the owner. Only Citus gets these statements.
        if (isOld && name.endsWith('-of-owner')) continue;
        for (const scan of await findScans(connection, name)) {
          const { 'Node Type': type, 'Relation Name': table = '', 'Index Cond': condition = '' } = scan;
          const isByKey = /^Index (Only )?Scan$/.test(type) && INDEX_CONDITIONS[table]?.test(condition);
          if (!isByKey) others.push(`${name}: ${type} on ${table} ${condition}`);
        }
      }
    });
    assert.deepEqual(others, []);
  });

test('no statement is compiled to machine code, however large the tables are', async (t) => {
  const connections = await openMigrated(t);
  const [row] = await connections.query({ text: "SELECT current_setting('jit') AS jit" });
  assert.equal(row?.jit, 'off');
});

test('migration changes the columns of prepared statements → they are prepared again, in the same mode', async (t) => {
  const url = new URL(await postgres.freshUrl(t));
  const sent: string[] = [];
  const proxy = await startTcpProxy(t, Number(url.port), (bytes) => void sent.push(bytes.toString('latin1')));
  const store = await openStore(`postgres://postgres@127.0.0.1:${proxy.port}${url.pathname}`, {
    now: Date.now,
    connections: { ...options, poolSize: 2 },
    onFatal: assert.fail,
  });
  t.after(() => store.close());
  const token = newToken(mintSecret(), 'alice', { scopes, expiresAt: null, name: 'test' }, Date.now());
  const { digest, ...fields } = token;
  await store.write({ kind: 'createToken', token });
  const createOne = (owner: string, id: bigint) => store.write(create(id, { owner }));
  const removeBoth = () =>
    Promise.all(['alice', 'bob'].map((owner) => store.write({ kind: 'deletePlant', owner, id: 1n })));
  await Promise.all([createOne('alice', 1n), createOne('bob', 1n)]);
  assert.deepEqual(await removeBoth(), ['deleted', 'deleted']);
  assert.deepEqual(await store.findToken(digest), fields);

  await execute(
    url.href,
    'ALTER TABLE plants ALTER owner TYPE varchar; ALTER TABLE tokens ALTER name TYPE varchar',
  );
  sent.length = 0;
  await Promise.all([createOne('alice', 1n), createOne('bob', 1n)]);
  assert.deepEqual(await removeBoth(), ['deleted', 'deleted']);
  assert.deepEqual(await store.findToken(digest), fields);
  assert.ok(sent.join('').includes('delete-plants\0'));
  assert.doesNotMatch(sent.join(''), /delete-plants-of-owner/);
});

test('0A000 means shards only when the message is from Citus', async (t) => {
  const url = await postgres.freshUrl(t);
  const unsupported = (message: string) => Object.assign(new Error(message), { code: '0A000' });
  assert.ok(isAcrossShards(unsupported('could not run distributed query with FOR UPDATE/SHARE commands')));
  const other = await execute(url, 'SELECT count(*) FROM pg_class FOR UPDATE').catch(
    (error: unknown) => error,
  );
  assert.ok(other instanceof Error && 'code' in other && other.code === '0A000');
  assert.ok(!isAcrossShards(other));
});
