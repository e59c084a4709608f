import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { openStore } from '../../../src/store/open-engine.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { toStoreError } from '../../../src/store/postgres/errors.ts';
import type { Statement } from '../../../src/store/postgres/statements.ts';
import { createTokenLookup } from '../../../src/store/postgres/token-lookup.ts';
import type { Row } from '../../../src/store/rows.ts';
import { mintSecret, newToken, scopes, type Token } from '../../../src/token.ts';
import { execute, connections as options, postgres } from '../../support/engines.ts';

/** Opens a store with tokens, and a lookup that counts its queries. */
async function openLookup(t: TestContext) {
  const url = await postgres.freshUrl(t);
  const store = await openStore(url, { now: Date.now, connections: options, onFatal: assert.fail });
  t.after(() => store.close());
  const tokens = ['alice', 'bob', 'carol'].map((owner) =>
    newToken(mintSecret(), owner, { scopes, expiresAt: null, name: 'test' }, Date.now()),
  );
  await Promise.all(tokens.map((token) => store.write({ kind: 'createToken', token })));
  const connections = new Connections(url, options);
  t.after(() => connections.close());
  const queries = { count: 0 };
  const read = async (statement: Statement): Promise<readonly Row[]> => {
    queries.count += 1;
    try {
      return await connections.read(statement);
    } catch (error: unknown) {
      throw toStoreError(error);
    }
  };
  return { url, store, tokens, queries, findToken: createTokenLookup(read) };
}

const idsOf = (found: readonly (Pick<Token, 'id'> | undefined)[]) => found.map((one) => one?.id);

test('lookups that arrive together → one query; each finds its own token, or nothing', async (t) => {
  const { tokens, queries, findToken } = await openLookup(t);
  const [alice = assert.fail(), bob = assert.fail(), carol = assert.fail()] = tokens;
  const unknown = new Uint8Array(32);
  const digests = [carol.digest, unknown, alice.digest, bob.digest, alice.digest, alice.digest.subarray(1)];
  const found = await Promise.all(digests.map(findToken));
  assert.deepEqual(idsOf(found), [carol.id, undefined, alice.id, bob.id, alice.id, undefined]);
  assert.equal(queries.count, 1);
});

test('lookup after the query was sent → a new query, which sees the writes until then', async (t) => {
  const { store, tokens, queries, findToken } = await openLookup(t);
  const [{ digest, id } = assert.fail()] = tokens;
  const first = findToken(digest);
  for (let iterations = 0; iterations < 2; iterations += 1) await setImmediate();
  assert.equal(queries.count, 1);
  await store.write({ kind: 'revokeToken', id, at: 5_000 });
  assert.equal((await findToken(digest))?.revokedAt, 5_000);
  assert.equal(queries.count, 2);
  await first;
});

test('server cannot read one of the tokens → only its caller gets an error', async (t) => {
  const { url, tokens, findToken } = await openLookup(t);
  await execute(
    url,
    `ALTER TABLE tokens RENAME TO stored;
     CREATE VIEW tokens AS SELECT owner, id, digest, scopes, created_at, expires_at, revoked_at, last_used_at,
       CASE WHEN owner = 'bob' THEN (1 / (created_at - created_at))::text ELSE name END AS name FROM stored`,
  );
  const [alice, bob, carol] = await Promise.allSettled(tokens.map(({ digest }) => findToken(digest)));
  assert.ok(alice?.status === 'fulfilled' && alice.value?.owner === 'alice');
  assert.ok(bob?.status === 'rejected' && /division by zero/.test(String(bob.reason)));
  assert.ok(carol?.status === 'fulfilled' && carol.value?.owner === 'carol');
});

test('1,025 lookups at once → two queries', async (t) => {
  const { tokens, queries, findToken } = await openLookup(t);
  const [{ digest, id } = assert.fail()] = tokens;
  const found = await Promise.all(Array.from({ length: 1_025 }, () => findToken(digest)));
  assert.deepEqual(new Set(idsOf(found)), new Set([id]));
  assert.equal(queries.count, 2);
});
