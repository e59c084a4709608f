import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StatementRejected, type Store } from '../../../src/store/store.ts';
import {
  type FoundToken,
  LAST_USE_STEP_MS,
  mintSecret,
  newToken,
  scopes,
  type Token,
} from '../../../src/token.ts';
import type { TestEngine } from '../../support/engines.ts';
import { assertRejected, create, listTokens, openOne, prepare, writeAll } from '../../support/store-setup.ts';

function tokenOf(owner: string, fields: Partial<Token> = {}): Token {
  const token = newToken(mintSecret(), owner, { scopes, expiresAt: null, name: '' }, Date.UTC(2026, 0, 1));
  return { ...token, ...fields };
}

/** Engines may return digests as any subclass of Uint8Array. */
function comparable(token: Token) {
  return { ...token, digest: Buffer.from(token.digest).toString('hex') };
}

async function addTokens(store: Store, tokens: readonly Token[]): Promise<void> {
  const outcomes = await writeAll(
    store,
    tokens.map((token) => ({ kind: 'createToken', token })),
  );
  assert.deepEqual(new Set(outcomes), new Set(['done']));
}

/** The fields of a token that the store returns with a found token. */
function withoutDigest({ digest: _, ...fields }: Token): FoundToken {
  return fields;
}

async function findAgain(store: Store, { digest }: Token): Promise<FoundToken> {
  const token = await store.findToken(digest);
  assert.ok(token !== undefined);
  return token;
}

export function testTokens(engine: TestEngine): void {
  test('a token is found by its digest with every field it had', async (t) => {
    const store = await openOne(t, engine);
    const tokens = [
      tokenOf('alice'),
      tokenOf('a'.repeat(128), {
        scopes: ['plants:read'],
        expiresAt: Date.UTC(2026, 3, 1),
        name: 'phone 📱',
      }),
      tokenOf('bob', { scopes: ['plants:write'], name: ' "quoted"\n', createdAt: 1, expiresAt: 2 }),
      tokenOf('carol', { expiresAt: Date.UTC(9999, 11, 31), revokedAt: 3, lastUsedAt: 4 }),
    ];
    await addTokens(store, tokens);
    for (const token of tokens) assert.deepEqual(await store.findToken(token.digest), withoutDigest(token));
    const atOnce = await Promise.all(tokens.map(({ digest }) => store.findToken(digest)));
    assert.deepEqual(atOnce, tokens.map(withoutDigest));
  });

  test('a digest that differs from that of a token finds nothing', async (t) => {
    const store = await openOne(t, engine);
    const token = tokenOf('alice');
    await addTokens(store, [token]);
    const changed = Buffer.from(token.digest);
    changed.writeUInt8(changed.readUInt8(31) ^ 1, 31);
    assert.equal(await store.findToken(changed), undefined);
    assert.equal(await store.findToken(token.digest.subarray(0, 31)), undefined);
    assert.equal(await store.findToken(new Uint8Array(32)), undefined);
  });

  test('tokens are listed by time of creation, then by id', async (t) => {
    const { url, open } = await prepare(t, engine);
    const { store } = await open();
    const tokens = [
      tokenOf('d', { id: 'aaaaaaaaaaaa', createdAt: 2_000 }),
      tokenOf('c', { id: 'Zaaaaaaaaaaa', createdAt: 2_000 }),
      tokenOf('b', { id: '9aaaaaaaaaaa', createdAt: 2_000 }),
      tokenOf('e', { id: 'aaaaaaaaaaaB', createdAt: 2_001 }),
      tokenOf('a', { id: 'zzzzzzzzzzzz', createdAt: 1_999 }),
    ];
    await addTokens(store, tokens);
    const listed = await listTokens(url);
    assert.deepEqual(
      listed.map(({ owner }) => owner),
      ['a', 'b', 'c', 'd', 'e'],
    );
    assert.deepEqual(listed.slice(0, 1).map(comparable), tokens.slice(-1).map(comparable));
  });

  test('a new store has no tokens', async (t) => {
    const { url, open } = await prepare(t, engine);
    const { store } = await open();
    assert.deepEqual(await listTokens(url), []);
    assert.deepEqual([await store.hasValidTokens(0), await store.isEmpty()], [false, true]);
    assert.equal(await store.findTokenById('aaaaaaaaaaaa'), undefined);
  });

  test('a store with a plant is not empty', async (t) => {
    const store = await openOne(t, engine);
    await store.write(create(1n));
    assert.deepEqual([await store.hasValidTokens(0), await store.isEmpty()], [false, false]);
  });

  test('a token is valid until it expires or is revoked, in each instance', async (t) => {
    const { open } = await prepare(t, engine);
    const [{ store }, other] = [await open(), await open()];
    await addTokens(store, [tokenOf('alice', { createdAt: 1, revokedAt: 2 })]);
    assert.deepEqual([await store.hasValidTokens(1), await store.isEmpty()], [false, false]);
    await addTokens(store, [tokenOf('alice', { createdAt: 1, expiresAt: 10 })]);
    assert.deepEqual([await store.hasValidTokens(9), await store.hasValidTokens(10)], [true, false]);
    await addTokens(store, [tokenOf('alice', { createdAt: 1, expiresAt: null })]);
    assert.deepEqual([await store.hasValidTokens(10), await other.store.hasValidTokens(10)], [true, true]);
  });

  test('two instances create a token with the same id → one of them is rejected', async (t) => {
    const { url, open } = await prepare(t, engine);
    const stores = [(await open()).store, (await open()).store];
    const results = await Promise.allSettled(
      stores.map((store) =>
        store.write({ kind: 'createToken', token: tokenOf('alice', { id: 'FirstToken00' }) }),
      ),
    );
    const rejected = results.filter((result) => result.status === 'rejected');
    assert.ok(rejected.every(({ reason }) => reason instanceof StatementRejected));
    assert.deepEqual([rejected.length, (await listTokens(url)).length], [1, 1]);
  });

  test('a token is found by its exact id, whatever its owner', async (t) => {
    const store = await openOne(t, engine);
    const tokens = [
      tokenOf('alice', { id: 'aaaaaaaaaaaa' }),
      tokenOf('bob', { id: 'AAAAAAAAAAAA', revokedAt: 3 }),
    ];
    await addTokens(store, tokens);
    for (const token of tokens) assert.deepEqual(await store.findTokenById(token.id), withoutDigest(token));
    for (const id of ['', 'aaaaaaaaaaa', 'aaaaaaaaaaaaa', 'aAaaaaaaaaaa', '%'])
      assert.equal(await store.findTokenById(id), undefined);
  });

  test('a token with a taken id or digest is rejected alone', async (t) => {
    const { url, open } = await prepare(t, engine);
    const { store } = await open();
    const token = tokenOf('alice');
    await addTokens(store, [token]);
    const sameId = store.write({ kind: 'createToken', token: tokenOf('bob', { id: token.id }) });
    const plant = store.write(create(1n));
    const sameDigest = store.write({ kind: 'createToken', token: tokenOf('bob', { digest: token.digest }) });
    await assertRejected(sameId, sameDigest);
    assert.equal(await plant, 'created');
    assert.deepEqual((await listTokens(url)).map(comparable), [comparable(token)]);
  });
}

export function testTokenLife(engine: TestEngine): void {
  test('a revoked token stays revoked and keeps the first time', async (t) => {
    const { open } = await prepare(t, engine);
    const [{ store }, other] = [await open(), await open()];
    const [token, untouched] = [tokenOf('alice'), tokenOf('alice')];
    await addTokens(store, [token, untouched]);
    assert.equal(await store.write({ kind: 'revokeToken', id: token.id, at: 5_000 }), 'done');
    assert.equal((await findAgain(other.store, token)).revokedAt, 5_000);
    assert.equal(await store.write({ kind: 'revokeToken', id: token.id, at: 6_000 }), 'done');
    assert.deepEqual(await findAgain(store, token), { ...withoutDigest(token), revokedAt: 5_000 });
    assert.deepEqual(await findAgain(store, untouched), withoutDigest(untouched));
  });

  test('a token that does not exist can be neither revoked nor used', async (t) => {
    const store = await openOne(t, engine);
    const { id } = tokenOf('alice');
    assert.equal(await store.write({ kind: 'revokeToken', id, at: 1 }), 'absent');
    assert.equal(await store.write({ kind: 'recordTokenUse', id, at: 1 }), 'absent');
  });

  test('the last use of a token is recorded in steps of a minute, also if the clock was set back', async (t) => {
    const store = await openOne(t, engine);
    const [token, untouched] = [tokenOf('alice'), tokenOf('alice')];
    await addTokens(store, [token, untouched]);
    const use = async (at: number): Promise<number | null> => {
      await store.write({ kind: 'recordTokenUse', id: token.id, at });
      return (await findAgain(store, token)).lastUsedAt;
    };
    const start = Date.UTC(2026, 0, 1);
    assert.equal(await use(start), start);
    assert.equal(await use(start + 1), start);
    assert.equal(await use(start + LAST_USE_STEP_MS - 1), start);
    assert.equal(await use(start + LAST_USE_STEP_MS), start + LAST_USE_STEP_MS);
    assert.equal(await use(start + 1), start + LAST_USE_STEP_MS);
    assert.equal(await use(start), start);
    assert.equal(await use(start - 1), start);
    assert.deepEqual(await findAgain(store, untouched), withoutDigest(untouched));
  });

  test('tokens survive closing and opening', async (t) => {
    const { url, open } = await prepare(t, engine);
    const before = await open();
    const token = tokenOf('alice', { name: 'kept' });
    await addTokens(before.store, [token]);
    await before.store.write({ kind: 'revokeToken', id: token.id, at: 5_000 });
    await before.store.write({ kind: 'recordTokenUse', id: token.id, at: 4_000 });
    await before.close();
    await open();
    const kept = { ...token, revokedAt: 5_000, lastUsedAt: 4_000 };
    assert.deepEqual((await listTokens(url)).map(comparable), [comparable(kept)]);
  });
}
