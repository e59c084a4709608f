import assert from 'node:assert/strict';
import { webcrypto } from 'node:crypto';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { JWT_CHECKS_AT_ONCE } from '../../../src/http/app.ts';
import { TOKEN_FRESH_MS } from '../../../src/http/auth/authentication.ts';
import { COOLDOWN_MS, STALE_MS } from '../../../src/http/auth/jwks.ts';
import { sqlite } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { AUDIENCE, newSigningKey, sign } from '../../support/servers/identity-provider.ts';
import { serve } from '../../support/servers/stub-server.ts';
import { bearer, startService, type TestService } from '../../support/service.ts';
import { create as createPlant } from '../../support/store-setup.ts';
import { createTokenIn } from '../../support/tokens.ts';

/** Three quarters of it are the limit of an address. */
const LIMIT = 4;
const OVERLOADED = /^\{"error":50301,"message":"too many requests are in flight/;

const key = await newSigningKey('known', 'ES256');
const otherKey = await newSigningKey('known', 'ES256');

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** A service with an identity provider whose responses can be held, and a token of each that were valid before. */
async function start(t: TestContext, maxInFlight = LIMIT) {
  let held: ServerResponse[] | undefined;
  let issuer = '';
  const answer = (response: ServerResponse): void =>
    void response.end(
      JSON.stringify({ issuer, jwks_uri: `${issuer}/keys`, keys: [{ ...key.jwk, d: undefined }] }),
    );
  issuer = await serve(t, (_request, response) => {
    if (held === undefined) answer(response);
    else held.push(response);
  });
  const service = await startService(t, await sqlite.freshUrl(t), {
    oidcIssuer: issuer,
    oidcAudience: AUDIENCE,
    maxInFlight: String(maxInFlight),
    trustProxy: '127.0.0.1',
  });
  let serial = 0;
  const exp = Math.floor(service.clock.now / 1_000) + 600;
  const jwtBy = (by: typeof key): Promise<string> => {
    serial += 1;
    return sign(
      by,
      { iss: issuer, aud: AUDIENCE, sub: 'alice', scope: 'plants:read', exp, serial },
      'at+jwt',
    );
  };
  const known = { local: await service.token(), jwt: await jwtBy(key) };
  for (const token of [known.local, known.jwt])
    assert.equal((await list(service, '192.0.2.9', token)).status, 200);
  service.clock.now += TOKEN_FRESH_MS;
  return {
    service,
    jwtBy,
    known,
    /** Several tokens of one owner that were valid before. */
    acceptedBefore: async (count: number) => {
      const tokens = await Promise.all(Array.from({ length: count }, () => jwtBy(key)));
      for (const token of tokens) assert.equal((await list(service, '192.0.2.9', token)).status, 200);
      service.clock.now += TOKEN_FRESH_MS;
      return tokens;
    },
    holdProvider: () => {
      held = [];
      service.clock.monotonic += COOLDOWN_MS;
      return () => {
        for (const response of held ?? []) answer(response);
        held = undefined;
      };
    },
  };
}

/** Lists with a token, through a proxy, for a client with this address. */
async function list({ url }: TestService, address: string, token: string): Promise<Answer> {
  const headers = { ...bearer(token), 'x-forwarded-for': address };
  const response = await fetch(`${url}/plants?limit=1`, { headers });
  return { status: response.status, text: await response.text() };
}

/** Holds the verification of signatures of these tokens. */
function holdVerifications(t: TestContext, tokens: readonly string[]) {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const signatures = new Set(tokens.map((token) => token.split('.').at(-1)));
  const verify = webcrypto.subtle.verify.bind(webcrypto.subtle);
  let begun = 0;
  t.mock.method(webcrypto.subtle, 'verify', async (...args: Parameters<typeof verify>) => {
    const signature = args[2];
    assert.ok(signature instanceof Uint8Array);
    if (signatures.has(Buffer.from(signature).toString('base64url'))) {
      begun += 1;
      await released;
    }
    return verify(...args);
  });
  return { begun: () => begun, release };
}

/** Sends each token from another address. */
function sendAll(service: TestService, tokens: readonly string[]): readonly Promise<Answer>[] {
  return tokens.map((token, index) => list(service, `192.0.2.${index + 1}`, token));
}

async function statusesOf(all: readonly Promise<Answer>[]): Promise<readonly number[]> {
  return (await Promise.all(all)).map(({ status }) => status).toSorted();
}

test('forged tokens at the limit of lookups → 50301; tokens that were valid before are looked up', async (t) => {
  const { service, jwtBy, known } = await start(t);
  const forged = await Promise.all(Array.from({ length: LIMIT + 1 }, () => jwtBy(otherKey)));
  const { release } = holdVerifications(t, forged);
  const all = sendAll(service, forged);
  assert.match((await Promise.race(all)).text, OVERLOADED);
  assert.match((await list(service, '192.0.2.8', await jwtBy(key))).text, OVERLOADED);
  assert.match((await list(service, '192.0.2.8', await service.token())).text, OVERLOADED);
  for (const token of [known.jwt, known.local])
    assert.equal((await list(service, '192.0.2.9', token)).status, 200);
  release();
  assert.deepEqual(await statusesOf(all), [401, 401, 401, 401, 503]);
  assert.equal((await list(service, '192.0.2.8', await jwtBy(key))).status, 200);
});

test('forged tokens of an address above three quarters of the limit → 50301', async (t) => {
  const { service, jwtBy } = await start(t);
  const forged = await Promise.all(Array.from({ length: LIMIT }, () => jwtBy(otherKey)));
  const { release } = holdVerifications(t, forged);
  const all = forged.map((token) => list(service, '192.0.2.1', token));
  assert.match((await Promise.race(all)).text, /"too many requests of this owner or address are in flight/);
  assert.equal((await list(service, '192.0.2.2', await jwtBy(key))).status, 200);
  release();
  assert.deepEqual(await statusesOf(all), [401, 401, 401, 503]);
});

test('many forged tokens → few are verified at once, the others wait', async (t) => {
  const { service, jwtBy, known } = await start(t, 2 * JWT_CHECKS_AT_ONCE);
  const forged = await Promise.all(Array.from({ length: JWT_CHECKS_AT_ONCE + 2 }, () => jwtBy(otherKey)));
  const { begun, release } = holdVerifications(t, forged);
  const all = sendAll(service, forged);
  await until(() => begun() === JWT_CHECKS_AT_ONCE);
  assert.equal((await list(service, '192.0.2.9', known.jwt)).status, 200);
  assert.equal(begun(), JWT_CHECKS_AT_ONCE);
  release();
  assert.deepEqual(new Set(await statusesOf(all)), new Set([401]));
});

test('an owner above three quarters of the limit, tokens that were valid before → 50301; other owners get the rest', async (t) => {
  const { service, known, acceptedBefore } = await start(t);
  const tokens = await acceptedBefore(LIMIT);
  const { release } = holdVerifications(t, tokens);
  const all = sendAll(service, tokens);
  assert.match((await Promise.race(all)).text, /"too many requests of this owner or address are in flight/);
  assert.equal((await list(service, '192.0.2.9', known.local)).status, 200);
  release();
  assert.deepEqual(await statusesOf(all), [200, 200, 200, 503]);
});

test('many tokens that were valid before → few are verified at once, the others wait', async (t) => {
  const { service, known, acceptedBefore } = await start(t, 2 * JWT_CHECKS_AT_ONCE);
  const tokens = await acceptedBefore(JWT_CHECKS_AT_ONCE + 2);
  const { begun, release } = holdVerifications(t, tokens);
  const all = sendAll(service, tokens);
  await until(() => begun() === JWT_CHECKS_AT_ONCE);
  assert.equal((await list(service, '192.0.2.9', known.local)).status, 200);
  assert.equal(begun(), JWT_CHECKS_AT_ONCE);
  release();
  assert.deepEqual(new Set(await statusesOf(all)), new Set([200]));
});

test('lookups at their limit → the token of a list that was begun is looked up, and its revocation ends the list', async (t) => {
  const { service, known } = await start(t, 1);
  const name = 'x'.repeat(100_000);
  const plants = Array.from({ length: 100 }, (_, id) => createPlant(BigInt(id), { owner: 'bob', name }));
  await Promise.all(plants.map((plant) => service.store.write(plant)));
  const { secret, id } = await createTokenIn(service.store, 'bob', {}, service.clock.now);
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
  t.after(() => socket.destroy());
  socket.write(`GET /plants HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${secret}\r\n\r\n`);
  await once(socket, 'readable');
  const { begun, release } = holdVerifications(t, [known.jwt]);
  const held = list(service, '192.0.2.9', known.jwt);
  await until(() => begun() === 1);
  assert.match((await list(service, '192.0.2.9', known.local)).text, OVERLOADED);
  await service.store.write({ kind: 'revokeToken', id, at: service.clock.now });
  service.clock.now += TOKEN_FRESH_MS;
  await until(() => service.logLines.some((line) => line.includes('"status":401')));
  release();
  assert.equal((await held).status, 200);
});

test('provider hangs, forged tokens with unknown keys → 50301 above the limit; known keys and other tokens work', async (t) => {
  const { service, jwtBy, known, holdProvider } = await start(t);
  const forged = await Promise.all(
    Array.from({ length: LIMIT + 1 }, (_, index) =>
      jwtBy({ jwk: { ...otherKey.jwk, kid: `unknown ${index}` } }),
    ),
  );
  const release = holdProvider();
  const all = sendAll(service, forged);
  assert.match((await Promise.race(all)).text, OVERLOADED);
  for (const token of [known.jwt, known.local, await jwtBy(key), await service.token()])
    assert.equal((await list(service, '192.0.2.9', token)).status, 200);
  release();
  // A token that arrived during the read gets 50302.
  assert.deepEqual(new Set(await statusesOf(all)), new Set([401, 503]));
});

test('old keys, provider hangs → tokens that were valid before wait without a limit', async (t) => {
  const { service, jwtBy, known, holdProvider } = await start(t);
  const release = holdProvider();
  service.clock.monotonic += STALE_MS;
  const forged = await Promise.all(Array.from({ length: LIMIT + 1 }, () => jwtBy(otherKey)));
  const all = sendAll(service, forged);
  assert.match((await Promise.race(all)).text, OVERLOADED);
  const waiting = list(service, '192.0.2.9', known.jwt);
  assert.equal((await list(service, '192.0.2.9', known.local)).status, 200);
  release();
  assert.equal((await waiting).status, 200);
  assert.deepEqual(await statusesOf(all), [401, 401, 401, 401, 503]);
});
