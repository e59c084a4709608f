import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { openStore } from '../../../src/store/open-engine.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import type { Row, Statement } from '../../../src/store/postgres/statements.ts';
import { createTokenLookUp } from '../../../src/store/postgres/token-look-up.ts';
import { StoreUnavailable } from '../../../src/store/store.ts';
import { mintSecret, newToken, scopes, type Token } from '../../../src/token.ts';
import { engines, connections as options } from '../../support/engines.ts';

const postgres = engines.find(({ name }) => name === 'postgres');

/** Opens a store with tokens, and a look-up that counts its queries and can fail them. */
async function openLookUp(t: TestContext) {
  assert.ok(postgres !== undefined);
  const url = await postgres.freshUrl(t);
  const store = await openStore(url, { now: Date.now, connections: options, onFatal: assert.fail });
  t.after(() => store.close());
  const tokens = ['alice', 'bob', 'carol'].map((owner) =>
    newToken(mintSecret(), owner, { scopes, expiresAt: null, name: 'test' }, Date.now()),
  );
  await Promise.all(tokens.map((token) => store.write({ kind: 'createToken', token })));
  const connections = new Connections(url, options);
  t.after(() => connections.close());
  const queries = { count: 0, failing: false };
  const read = async (statement: Statement): Promise<readonly Row[]> => {
    queries.count += 1;
    if (queries.failing) throw new StoreUnavailable('no connection');
    return connections.read(statement);
  };
  return { store, tokens, queries, findToken: createTokenLookUp(read) };
}

const idsOf = (found: readonly (Pick<Token, 'id'> | undefined)[]) => found.map((one) => one?.id);

test('look-ups of an event-loop iteration → one query; each finds its own token, or nothing', async (t) => {
  const { tokens, queries, findToken } = await openLookUp(t);
  const [alice = assert.fail(), bob = assert.fail(), carol = assert.fail()] = tokens;
  const unknown = new Uint8Array(32);
  const digests = [carol.digest, unknown, alice.digest, bob.digest, alice.digest, alice.digest.subarray(1)];
  const found = await Promise.all(digests.map(findToken));
  assert.deepEqual(idsOf(found), [carol.id, undefined, alice.id, bob.id, alice.id, undefined]);
  assert.equal(queries.count, 1);
});

test('look-up after the query was sent → a new query, which sees the writes until then', async (t) => {
  const { store, tokens, queries, findToken } = await openLookUp(t);
  const [{ digest, id } = assert.fail()] = tokens;
  const first = findToken(digest);
  await new Promise(setImmediate);
  assert.equal(queries.count, 1);
  await store.write({ kind: 'revokeToken', id, at: 5_000 });
  assert.equal((await findToken(digest))?.revokedAt, 5_000);
  assert.equal(queries.count, 2);
  await first;
});

test('query fails → all of its look-ups reject; the next look-up sends a new query', async (t) => {
  const { tokens, queries, findToken } = await openLookUp(t);
  queries.failing = true;
  const failed = await Promise.allSettled(tokens.map(({ digest }) => findToken(digest)));
  for (const one of failed)
    assert.ok(one.status === 'rejected' && one.reason instanceof StoreUnavailable, one.status);
  queries.failing = false;
  const found = await Promise.all(tokens.map(({ digest }) => findToken(digest)));
  assert.deepEqual(idsOf(found), idsOf(tokens));
  assert.equal(queries.count, 2);
});
