import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { errors, type JWK } from 'jose';
import {
  COOLDOWN_MS,
  createIssuerKeys,
  MAX_DOCUMENT_BYTES,
  MAX_KEYS,
  MAX_WITHOUT_KEY,
  REFRESH_MS,
  SLOW_FAILURE_MS,
  STALE_MS,
} from '../../../src/http/auth/jwks.ts';
import { mockRunningClock } from '../../support/running-clock.ts';
import { newSigningKey } from '../../support/servers/identity-provider.ts';
import { serve } from '../../support/servers/stub-server.ts';

const unlimited = <T>(work: () => Promise<T>): Promise<T> => work();

/** Keys of an issuer on a local port, whose responses the test can hold. */
async function startIssuer(t: TestContext) {
  const provider: { keys: readonly JWK[]; holds: boolean; failureMs: number } = {
    keys: [await publicKey('first')],
    holds: false,
    failureMs: 0,
  };
  let held = Promise.withResolvers<ServerResponse>();
  let issuer = '';
  issuer = await serve(t, ({ url }, response) => {
    if (provider.holds && url === '/keys') held.resolve(response);
    else if (provider.failureMs > 0) {
      clock.now += provider.failureMs;
      response.writeHead(503).end();
    } else answer(response);
  });
  const answer = (response: ServerResponse, keys = provider.keys): void =>
    void response.end(JSON.stringify({ issuer, jwks_uri: `${issuer}/keys`, keys }));
  const clock = { now: Math.ceil(performance.now()) };
  const verifyWithKeys = createIssuerKeys({
    issuer,
    now: () => clock.now,
    monotonicNow: () => clock.now,
    closed: new AbortController().signal,
    onKeysRead: () => undefined,
    onKeysUnreadable: (error) => assert.match(String(error), /publishes no usable key$|returned status 503$/),
    onUnusableKey: assert.fail,
  });
  /** Finds the key with this id for a token. */
  const verify = (token: string, kid: string): Promise<unknown> =>
    verifyWithKeys(
      token,
      (findKey) => findKey({ alg: 'ES256', kid }, { payload: '', signature: '' }),
      unlimited,
    );
  await assert.rejects(verify('token at the start', 'none'), { code: 50302 });
  clock.now += COOLDOWN_MS;

  return {
    provider,
    clock,
    verify,
    /** Starts a read by a token with an unknown key. Returns a function that ends it, with older keys. */
    startRead: async () => {
      const older = provider.keys;
      provider.holds = true;
      const starter = verify('token that starts a read', 'unknown');
      const response = await held.promise;
      held = Promise.withResolvers();
      return async () => {
        provider.holds = false;
        answer(response, older);
        await assert.rejects(starter, errors.JWKSNoMatchingKey);
      };
    },
  };
}

async function publicKey(kid: string): Promise<JWK> {
  const { kty = '', crv = '', x = '', y = '' } = (await newSigningKey(kid, 'ES256')).jwk;
  return { kty, crv, x, y, kid };
}

test('new key, token arrives during a read of older keys → 50302, then it is found', async (t) => {
  const { provider, clock, verify, startRead } = await startIssuer(t);
  const end = await startRead();
  provider.keys = [await publicKey('new')];
  const early = assert.rejects(verify('genuine', 'new'), { code: 50302 });
  await end();
  await early;
  await assert.rejects(verify('genuine', 'new'), { code: 50302 });
  clock.now += COOLDOWN_MS;
  await verify('genuine', 'new');
});

test('forged token with the id of the next key → does not reject that key', async (t) => {
  const { provider, clock, verify } = await startIssuer(t);
  await assert.rejects(verify('forged', 'next'), errors.JWKSNoMatchingKey);
  provider.keys = [await publicKey('next')];
  await assert.rejects(verify('genuine', 'next'), { code: 50302 });
  await assert.rejects(verify('forged', 'next'), errors.JWKSNoMatchingKey);
  clock.now += COOLDOWN_MS;
  await verify('genuine', 'next');
});

test('unknown key → 50302 until a read that began after the token arrived; then invalid', async (t) => {
  const { clock, verify, startRead } = await startIssuer(t);
  await (await startRead())();
  await assert.rejects(verify('stranger', 'unknown'), { code: 50302 });
  clock.now += COOLDOWN_MS;
  await (await startRead())();
  await assert.rejects(verify('stranger', 'unknown'), errors.JWKSNoMatchingKey);
});

test('more tokens with unknown keys than are remembered → the first one counts as new', async (t) => {
  const { clock, verify } = await startIssuer(t);
  const tokens = Array.from({ length: MAX_WITHOUT_KEY }, (_, index) => `token ${index}`);
  await assert.rejects(verify('first', 'unknown'), errors.JWKSNoMatchingKey);
  for (const token of tokens) await assert.rejects(verify(token, 'unknown'), { code: 50302 });
  await assert.rejects(verify('first', 'unknown'), { code: 50302 });
  clock.now += COOLDOWN_MS;
  await assert.rejects(verify('first', 'unknown'), errors.JWKSNoMatchingKey);
});

/** Answers with spaces until the client closes the connection. Returns the number of bytes so far. */
function sendEndlessly(response: ServerResponse): () => number {
  const piece = Buffer.alloc(65_536, ' ');
  let sent = 0;
  const send = (): void => {
    while (!response.destroyed) {
      sent += piece.length;
      if (!response.write(piece)) return void response.once('drain', send);
    }
  };
  send();
  return () => sent;
}

/** Reads the keys once. Resolves to the error, if any. */
async function readOnce(
  t: TestContext,
  keys: (response: ServerResponse) => void,
  onUnusableKey: (kid: string | undefined) => void = assert.fail,
): Promise<unknown> {
  let issuer = '';
  issuer = await serve(t, ({ url }, response) => {
    if (url === '/keys') keys(response);
    else response.end(JSON.stringify({ issuer, jwks_uri: `${issuer}/keys` }));
  });
  let failure: unknown;
  const verifyWithKeys = createIssuerKeys({
    issuer,
    now: Date.now,
    monotonicNow: () => performance.now(),
    closed: new AbortController().signal,
    onKeysRead: () => undefined,
    onKeysUnreadable: (error) => {
      failure = error;
    },
    onUnusableKey,
  });
  await assert.rejects(
    verifyWithKeys(
      'token',
      (findKey) => findKey({ alg: 'ES256', kid: 'x' }, { payload: '', signature: '' }),
      unlimited,
    ),
    { code: 50302 },
  );
  return failure;
}

test('keys in a document that is too large, also if it is compressed → not read', async (t) => {
  const tooLarge = new RegExp(`/keys returned more than ${MAX_DOCUMENT_BYTES} bytes`);
  let sent = (): number => 0;
  const endless = await readOnce(t, (response) => {
    sent = sendEndlessly(response);
  });
  assert.match(String(endless), tooLarge);
  // The kernel buffers some megabytes.
  assert.ok(sent() < 32 * MAX_DOCUMENT_BYTES, `${sent()} bytes were sent`);
  const bomb = gzipSync(Buffer.alloc(64 * MAX_DOCUMENT_BYTES, ' '));
  const compressed = await readOnce(t, (response) => {
    response.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb);
  });
  assert.match(String(compressed), tooLarge);
});

test('as many keys as the limit → read; one more → not read', async (t) => {
  const key = await publicKey('key');
  const keys = Array.from({ length: MAX_KEYS + 1 }, (_, index) => ({ ...key, kid: String(index) }));
  assert.equal(
    await readOnce(t, (response) => void response.end(JSON.stringify({ keys: keys.slice(1) }))),
    undefined,
  );
  const failure = await readOnce(t, (response) => void response.end(JSON.stringify({ keys })));
  assert.match(String(failure), /\/keys has more than 100 keys$/);
});

test('set without a usable key → withdraws all keys, and is a failure; then a new key is found', async (t) => {
  const failure = await readOnce(t, (response) => void response.end('{"keys":[]}'));
  assert.match(String(failure), /publishes no usable key$/);

  const { provider, clock, verify } = await startIssuer(t);
  const { keys } = provider;
  await verify('genuine', 'first');
  provider.keys = [];
  clock.now += STALE_MS + 1;
  await assert.rejects(verify('genuine', 'first'), { code: 50302 });
  await assert.rejects(verify('another', 'first'), { code: 50302 });
  provider.keys = keys;
  clock.now += COOLDOWN_MS;
  await verify('genuine', 'first');
});

for (const [failureMs, isKnown] of [
  [SLOW_FAILURE_MS - 1, false],
  [SLOW_FAILURE_MS, true],
] as const)
  test(`a read has failed in ${failureMs} ms → tokens ${isKnown ? 'do not wait' : 'wait'} for the next one of old keys`, async (t) => {
    const { provider, clock, verify } = await startIssuer(t);
    await verify('genuine', 'first');
    provider.keys = [await publicKey('second')];
    provider.failureMs = failureMs;
    clock.now += REFRESH_MS;
    // The token of an unknown key waits for the read that the other one starts.
    await Promise.all([
      verify('genuine', 'first'),
      assert.rejects(verify('another', 'unknown'), { code: 50302 }),
    ]);
    provider.failureMs = 0;
    clock.now += STALE_MS - REFRESH_MS;
    const withdrawn = verify('genuine', 'first');
    await (isKnown ? withdrawn : assert.rejects(withdrawn, errors.JWKSNoMatchingKey));
    // Waits for the read in the background.
    await assert.rejects(verify('last', 'unknown'), { code: 50302 });
  });

test('a key that cannot be copied → ignored, and the others are read', async (t) => {
  const depth = 6_000;
  const nested = `{"kty":"EC","kid":"nested","x5c":${'['.repeat(depth)}${']'.repeat(depth)}}`;
  const sound = JSON.stringify(await publicKey('sound'));
  const unusable: unknown[] = [];
  const failure = await readOnce(
    t,
    (response) => void response.end(`{"keys":[${nested},${sound}]}`),
    (kid) => unusable.push(kid),
  );
  assert.equal(failure, undefined);
  assert.deepEqual(unusable, ['nested']);
});

for (const [what, status] of [
  ['redirect', 302],
  ['error', 503],
] as const)
  test(`${what} whose body does not end → its connection is closed`, async (t) => {
    const closed = Promise.withResolvers<void>();
    const failure = await readOnce(t, (response) => {
      response.once('close', closed.resolve);
      response.writeHead(status, { location: '/elsewhere' }).write('x');
    });
    assert.ok(failure instanceof Error);
    await closed.promise;
  });

test('redirect to another server with the key of a token → not followed', async (t) => {
  const keys = [await publicKey('x')];
  let requests = 0;
  const other = await serve(t, (_request, response) => {
    requests += 1;
    response.end(JSON.stringify({ keys }));
  });
  const failure = await readOnce(t, (response) => void response.writeHead(302, { location: other }).end());
  assert.match(String(failure), /returned status 302$/);
  assert.equal(requests, 0);
});

for (const [how, expected] of [
  ['run', /\/keys has not answered within the 5000 ms of a read$/],
  ['suspend', /publishes no usable key$/],
] as const)
  test(`provider that sends its keys after 5 s in which the process is ${how === 'run' ? 'running → not' : 'suspended →'} read`, async (t) => {
    const clock = mockRunningClock(t);
    const failure = await readOnce(t, (response) => {
      clock[how](5_000);
      response.end('{"keys":[]}');
    });
    assert.match(String(failure), expected);
  });
