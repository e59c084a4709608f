import assert from 'node:assert/strict';
import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { decodeJwt, type JWK, type JWTPayload, SignJWT } from 'jose';
import { freshFolder } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';
import {
  ACCESS_TOKEN_SECONDS,
  AUDIENCE,
  type IdentityProvider,
  newSigningKey,
  sign,
  startIdentityProvider,
} from '../../support/servers/identity-provider.ts';
import { serve as serveHttp } from '../../support/servers/stub-server.ts';
import { bearer, startService, type TestService } from '../../support/service.ts';

const COOLDOWN_MS = 10_000;
const REFRESH_MS = 240_000;
const STALE_MS = 300_000;
const KEPT_MS = 86_400_000;
const TOLERANCE_MS = 30_000;

const firstKey = await newSigningKey('first');
const secondKey = await newSigningKey('second', 'ES256');

const UNUSABLE = 'a key of the identity provider is unusable; replace it at the provider';

const UNREADABLE =
  'the keys of the identity provider could not be read; check the provider and --oidc-issuer';

interface Setting {
  readonly provider: IdentityProvider;
  readonly service: TestService;
}

async function start(t: TestContext): Promise<Setting> {
  const provider = await startIdentityProvider(t, firstKey);
  return { provider, service: await serve(t, provider.issuer) };
}

async function serve(t: TestContext, oidcIssuer: string): Promise<TestService> {
  const databaseUrl = `sqlite:${join(await freshFolder(), 'plants.db')}`;
  return startService(t, databaseUrl, { oidcIssuer, oidcAudience: AUDIENCE });
}

/** A stand-in for a provider, for keys and faults that a real one does not have. */
interface StubProvider {
  readonly issuer: string;
  readonly keysRead: number;
  keys: readonly unknown[];
  state: 'up' | 'failing' | 'hanging';
  /** Responses of the requests that hang. */
  readonly hanging: readonly ServerResponse[];
}

async function startStub(t: TestContext, keys: readonly unknown[]) {
  const hanging: ServerResponse[] = [];
  let keysRead = 0;
  let issuer = '';
  const provider: StubProvider = {
    get issuer() {
      return issuer;
    },
    get keysRead() {
      return keysRead;
    },
    keys,
    state: 'up',
    hanging,
  };
  issuer = await serveHttp(t, ({ url }, response) => {
    if (provider.state === 'hanging') return void hanging.push(response);
    if (provider.state === 'failing') return void response.writeHead(500).end();
    if (url === '/keys') keysRead += 1;
    response.end(
      JSON.stringify(url === '/keys' ? { keys: provider.keys } : { issuer, jwks_uri: `${issuer}/keys` }),
    );
  });
  return { provider, service: await serve(t, issuer) };
}

async function list(service: TestService, token: string): Promise<Response> {
  return fetch(`${service.url}/plants`, { headers: bearer(token) });
}

async function create(service: TestService, token: string, id: number): Promise<Response> {
  return fetch(`${service.url}/plants`, {
    method: 'POST',
    headers: { ...bearer(token), 'content-type': 'application/json' },
    body: JSON.stringify({ id, name: `plant ${id}` }),
  });
}

/** Claims of a valid access token with changes, for tokens that providers would not issue. */
function claims(
  { provider, service }: Setting,
  changed: JWTPayload = {},
  without: readonly string[] = [],
): JWTPayload {
  const all = {
    iss: provider.issuer,
    aud: AUDIENCE,
    sub: 'greenhouse',
    scope: 'plants:read plants:write',
    exp: Math.floor(service.clock.now / 1_000) + ACCESS_TOKEN_SECONDS,
    ...changed,
  };
  return Object.fromEntries(Object.entries(all).filter(([claim]) => !without.includes(claim)));
}

async function assertInvalid(service: TestService, token: string, what: string): Promise<void> {
  const answer = await list(service, token);
  assert.equal(answer.status, 401, what);
  assert.equal(answer.headers.get('www-authenticate'), 'Bearer realm="plant-store", error="invalid_token"');
  assert.deepEqual(
    await answer.json(),
    { error: 40101, message: 'invalid token: unknown, malformed, expired or revoked' },
    what,
  );
}

async function assertUnavailable(service: TestService, token: string, seconds: number): Promise<void> {
  const answer = await list(service, token);
  assert.deepEqual([answer.status, answer.headers.get('retry-after')], [503, String(seconds)]);
  assert.match(await answer.text(), /^\{"error":50302,"message":"[^"]+"\}$/);
}

test('access token of the provider → creates, lists and deletes, for a separate owner', async (t) => {
  const { provider, service } = await start(t);
  const token = await provider.accessToken({ client: 'alice' });
  assert.equal((await create(service, token, 1)).status, 200);
  assert.deepEqual(await (await list(service, token)).json(), [{ name: 'plant 1' }]);

  for (const other of [await service.token('alice'), await provider.accessToken({ client: 'greenhouse' })]) {
    assert.deepEqual(
      await (await list(service, other)).json(),
      [],
      'other owners do not see the plants of alice',
    );
  }
  const owners = service.logLines.map((line) => JSON.parse(line).owner);
  assert.ok(owners.includes(`${provider.issuer}#alice`));

  const headers = bearer(token);
  assert.equal((await fetch(`${service.url}/plants/1`, { method: 'DELETE', headers })).status, 204);
  assert.equal(provider.keysRead, 1, 'the keys were read once');
});

test('tokens of the service work next to those of the provider, which are not stored', async (t) => {
  const { provider, service } = await start(t);
  assert.equal((await list(service, await provider.accessToken())).status, 200);
  assert.equal(await service.store.hasValidTokens(0), false);
  assert.equal((await list(service, await service.token())).status, 200);
});

test('scopes of other services are ignored; missing scope → 40300', async (t) => {
  const { provider, service } = await start(t);
  const reader = await provider.accessToken({ scope: 'plants:read invoices:read' });
  assert.equal((await list(service, reader)).status, 200);
  const rejected = await create(service, reader, 1);
  assert.equal(rejected.status, 403);
  assert.match(String(rejected.headers.get('www-authenticate')), /insufficient_scope", scope="plants:write"/);
  assert.match(await rejected.text(), /"error":40300/);
  const stranger = await provider.accessToken({ scope: 'invoices:read' });
  assert.equal((await list(service, stranger)).status, 403);
  const numbered = await sign(firstKey, claims({ provider, service }, { scope: 7 }), 'at+jwt');
  assert.equal((await list(service, numbered)).status, 403, 'a scope that is neither text nor a list');
});

test('expired token → valid for 30 s more (clock tolerance), then 40101', async (t) => {
  const { provider, service } = await start(t);
  const token = await provider.accessToken();
  const expiresAt = Number(decodeJwt(token).exp) * 1_000;
  service.clock.now = expiresAt + TOLERANCE_MS - 1_000;
  assert.equal((await list(service, token)).status, 200);
  service.clock.now = expiresAt + TOLERANCE_MS;
  await assertInvalid(service, token, 'expired while in the cache');
  const service2 = await serve(t, provider.issuer);
  service2.clock.now = expiresAt + TOLERANCE_MS;
  await assertInvalid(service2, token, 'expired before its first use');
});

test('other audience, issuer or key → 40101', async (t) => {
  const { provider, service } = await start(t);
  await assertInvalid(service, await provider.accessToken({ audience: 'https://other.example' }), 'audience');
  const impostor = await startIdentityProvider(t, firstKey);
  await assertInvalid(service, await impostor.accessToken(), 'issuer, though signed with the same key');
  await assertInvalid(
    service,
    await sign(await newSigningKey('first'), claims({ provider, service }), 'at+jwt'),
    'key',
  );
  assert.equal((await list(service, await provider.accessToken())).status, 200);
});

test('alg none, HS256, changed claims or key in the header → 40101', async (t) => {
  const setting = await start(t);
  const { provider, service } = setting;
  const good = await provider.accessToken();
  assert.equal((await list(service, good)).status, 200);
  const [header = '', payload = '', signature = ''] = good.split('.');
  const none = encode({ alg: 'none', typ: 'at+jwt' });
  for (const token of [`${none}.${payload}.`, `${none}.${payload}.${signature}`]) {
    await assertInvalid(service, token, 'alg none');
  }

  const { n = '', e = '' } = provider.key.jwk;
  const publicKey = createPublicKey({ key: { kty: 'RSA', n, e }, format: 'jwk' });
  for (const type of ['spki', 'pkcs1'] as const) {
    const secret = Buffer.from(publicKey.export({ type, format: 'pem' }));
    const confused = await new SignJWT(claims(setting))
      .setProtectedHeader({ alg: 'HS256', typ: 'at+jwt', kid: 'first' })
      .sign(secret);
    await assertInvalid(service, confused, `HS256 with the public key as ${type}`);
  }

  const wider = encode({ ...decodeJwt(good), sub: 'root' });
  await assertInvalid(service, `${header}.${wider}.${signature}`, 'other claims under the signature');
  pass(service, COOLDOWN_MS);
  const inline = encode({ alg: 'RS256', typ: 'at+jwt', jwk: (await newSigningKey('first')).jwk });
  await assertInvalid(service, `${inline}.${payload}.${signature}`, 'a key in the header');
});

/** A token that differs from a valid one: its `typ`, claims that are changed, and names of claims it lacks. */
type TokenVariant = readonly [
  title: string,
  typ: string | undefined,
  changed: JWTPayload,
  ...without: string[],
];

test('missing or invalid claim, or not a bearer access token → 40101', async (t) => {
  const setting = await start(t);
  const { service } = setting;
  const variants: readonly TokenVariant[] = [
    ['no exp', 'at+jwt', {}, 'exp'],
    ['no sub', 'at+jwt', {}, 'sub'],
    ['no aud', 'at+jwt', {}, 'aud'],
    ['no iss', 'at+jwt', {}, 'iss'],
    ['an empty subject', 'at+jwt', { sub: '' }],
    ['a subject that is a number', 'at+jwt', JSON.parse('{"sub":7}')],
    ['a subject of 256 characters', 'at+jwt', { sub: 's'.repeat(256) }],
    ['a subject with U+0000', 'at+jwt', { sub: 'alice\0' }],
    ['not yet valid', 'at+jwt', { nbf: Math.floor(service.clock.now / 1_000) + 60 }],
    ['bound to a key of the client', 'at+jwt', { cnf: { jkt: 'x' } }],
    ['an ID token', 'JWT', { nonce: 'n' }, 'scope'],
    ['an ID token without typ', undefined, {}, 'scope'],
    ['a logout token', 'logout+jwt', {}],
    ['a typ that is a number', JSON.parse('7'), {}],
  ];
  for (const [title, typ, changed, ...without] of variants) {
    await assertInvalid(service, await sign(firstKey, claims(setting, changed, without), typ), title);
  }
});

test('a JWT with a valid signature is rejected → the audit line has the reason and its owner', async (t) => {
  const setting = await start(t);
  const { service, provider } = setting;
  const past = Math.floor((service.clock.now - TOLERANCE_MS) / 1_000);
  const rejected: readonly (readonly [
    reason: string,
    changed: JWTPayload,
    without?: readonly string[],
    typ?: string,
  ])[] = [
    ['expired', { sub: 'a', exp: past }],
    ['audience', { sub: 'b', aud: 'https://other.example' }],
    ['audience', { sub: 'c' }, ['aud']],
    ['scope', { sub: 'd' }, ['scope'], 'JWT'],
    ['claims', { sub: 'e', nbf: past + 600 }],
    ['claims', { sub: 'f', cnf: { jkt: 'x' } }],
    ['claims', { sub: 'g' }, [], 'logout+jwt'],
    ['claims', { sub: 'h' }, ['exp']],
  ];
  for (const [reason, changed, without, typ = 'at+jwt'] of rejected)
    await assertInvalid(service, await sign(firstKey, claims(setting, changed, without), typ), reason);
  await assertInvalid(service, await sign(firstKey, claims(setting, { sub: 'é' }), 'at+jwt'), 'no owner');
  await assertInvalid(
    service,
    await sign(firstKey, claims(setting, { exp: past }, ['sub']), 'at+jwt'),
    'no sub',
  );
  const genuine = await sign(firstKey, claims(setting), 'at+jwt');
  await assertInvalid(service, `${genuine.slice(0, -8)}AAAAAAAA`, 'forged');
  await assertInvalid(
    service,
    await sign(firstKey, claims(setting, { iss: `${provider.issuer}/` }), 'at+jwt'),
    'issuer',
  );
  await assertInvalid(service, `${genuine}.`, 'malformed');
  const logged = service.logLines
    .filter((line) => line.includes('"tokenRefused"'))
    .map((line) => JSON.parse(line));
  assert.deepEqual(
    logged.map(({ reason, owner }) => [reason, owner]),
    [
      ...rejected.map(([reason, { sub }]) => [reason, `${provider.issuer}#${sub}`]),
      ['claims', undefined],
      ['unknown', undefined],
      ['issuer', undefined],
      ['malformed', undefined],
    ],
  );
});

test('access tokens as other providers issue them → accepted', async (t) => {
  const setting = await start(t);
  const { service } = setting;
  const variants: readonly TokenVariant[] = [
    ['the full media type', 'application/at+jwt', {}],
    ['JWT', 'JWT', {}],
    ['no typ', undefined, {}],
    ['several audiences', 'JWT', { aud: ['account', AUDIENCE] }],
    ['scp as a string', 'JWT', { scp: 'plants:read' }, 'scope'],
    ['scp as a list', undefined, { scp: ['openid', 'plants:read'] }, 'scope'],
    ['a subject of 255 characters', 'at+jwt', { sub: '|'.repeat(255) }],
  ];
  for (const [title, typ, changed, ...without] of variants) {
    const token = await sign(firstKey, claims(setting, changed, without), typ);
    assert.equal((await list(service, token)).status, 200, title);
  }
});

test('malformed, too long or from another issuer → 40101 without reading the keys', async (t) => {
  const setting = await start(t);
  const { provider, service } = setting;
  assert.equal((await list(service, await provider.accessToken())).status, 200);
  pass(service, COOLDOWN_MS);
  const unknown = await newSigningKey('unknown');
  const tokens = [
    'x',
    'a.b',
    'a.b.c',
    'a.b.c.d',
    '..',
    `${encode({ alg: 'RS256', kid: 'unknown' })}.${encode('text')}.AAAA`,
    `${encode({ alg: 'RS256', kid: 'unknown' })}.bm90IGpzb24.AAAA`,
    `${'plt_'.padEnd(53, '0')}`,
    await sign(unknown, claims(setting, { iss: 'https://other.example' }), 'at+jwt'),
    await sign(unknown, claims(setting, { padding: 'x'.repeat(7_000) }), 'at+jwt'),
  ];
  for (const token of tokens) await assertInvalid(service, token, token.slice(0, 40));
  assert.equal(provider.keysRead, 1);
});

test('new key → found at once; withdrawn key → 40101', async (t) => {
  const { provider, service } = await start(t);
  const [old, older] = [await provider.accessToken(), await provider.accessToken()];
  assert.equal((await list(service, older)).status, 200);
  provider.rotate(secondKey);
  pass(service, COOLDOWN_MS);
  assert.equal((await list(service, await provider.accessToken())).status, 200);
  assert.equal(provider.keysRead, 2);
  pass(service, 1_000);
  await assertUnavailable(service, old, 9);
  assert.equal(provider.keysRead, 2, 'the keys are not read again so soon');
  pass(service, COOLDOWN_MS);
  await assertInvalid(service, old, 'signed with a key that was withdrawn');
});

test('clock set forward and back by days while the provider is away → the known keys work', async (t) => {
  const setting = await start(t);
  const { provider, service } = setting;
  const listByFirstKey = listerByFirstKey(setting);
  assert.equal((await listByFirstKey()).status, 200);
  await provider.goDown();
  for (const days of [2, -4, 2]) {
    service.clock.now += days * KEPT_MS;
    assert.equal((await listByFirstKey()).status, 200);
  }
});

/** Lets time pass on both clocks of a service. */
function pass({ clock }: TestService, ms: number): void {
  clock.now += ms;
  clock.monotonic += ms;
}

/** Returns a function that lists with a new token of `firstKey` at each call. The tokens are valid for days. */
function listerByFirstKey(setting: Setting): () => Promise<Response> {
  const exp = Math.floor((setting.service.clock.now + 3 * KEPT_MS) / 1_000);
  let serial = 0;
  return async () => {
    serial += 1;
    const claimed = claims(setting, { exp, jti: String(serial) });
    return list(setting.service, await sign(firstKey, claimed, 'at+jwt'));
  };
}

test('withdrawn key, no token with a new key → known keys work during the refresh, then 40101', async (t) => {
  const setting = await start(t);
  const { provider, service } = setting;
  const listByOldKey = listerByFirstKey(setting);
  assert.equal((await listByOldKey()).status, 200);
  provider.rotate(secondKey);
  pass(service, REFRESH_MS);
  assert.equal((await listByOldKey()).status, 200);
  assert.equal(provider.keysRead, 1);
  pass(service, 1);
  assert.equal((await listByOldKey()).status, 200, 'known keys are used during the refresh');
  let answer = await listByOldKey();
  while (answer.status === 200) answer = await listByOldKey();
  assert.equal(answer.status, 503);
  assert.equal(provider.keysRead, 2);
  pass(service, COOLDOWN_MS);
  assert.equal((await listByOldKey()).status, 401);
  assert.equal((await listByOldKey()).status, 503, 'the next token has not been looked up');
  assert.equal(provider.keysRead, 3);
});

test('withdrawn key, no token for five minutes or more → 40101 after one read, 50302 for concurrent tokens', async (t) => {
  for (const idleMs of [STALE_MS + 1, KEPT_MS - 1_000, 2 * KEPT_MS]) {
    const setting = await start(t);
    const { provider, service } = setting;
    const listByOldKey = listerByFirstKey(setting);
    assert.equal((await listByOldKey()).status, 200);
    provider.rotate(secondKey);
    pass(service, idleMs);
    const answers = await Promise.all(Array.from({ length: 5 }, listByOldKey));
    assert.deepEqual(
      answers.map(({ status }) => status).toSorted(),
      [401, 503, 503, 503, 503],
      `after ${idleMs} ms`,
    );
    assert.equal(provider.keysRead, 2);
  }
});

test('withdrawn key, the machine slept soon after the keys were read → 40101 after one read', async (t) => {
  const setting = await start(t);
  const { provider, service } = setting;
  const listByOldKey = listerByFirstKey(setting);
  assert.equal((await listByOldKey()).status, 200);
  provider.rotate(secondKey);
  // A monotonic clock stands still during the sleep.
  service.clock.now += STALE_MS + 1;
  assert.equal((await listByOldKey()).status, 401);
  assert.equal(provider.keysRead, 2);
});

test('a read of the keys hung lately, and the next one hangs → known keys work meanwhile', async (t) => {
  const { service, provider } = await startStub(t, [publicPartOf(firstKey.jwk)]);
  const exp = Math.floor((service.clock.now + KEPT_MS) / 1_000);
  const listWith = async (jti: string): Promise<number> => {
    const claimed = { iss: provider.issuer, aud: AUDIENCE, sub: 'alice', scope: 'plants:read', exp, jti };
    return (await list(service, await sign(firstKey, claimed, 'at+jwt'))).status;
  };
  assert.equal(await listWith('keys are known'), 200);
  provider.state = 'hanging';
  pass(service, STALE_MS + 1);
  const answer = listWith('the read hangs');
  await until(() => provider.hanging.length === 1);
  pass(service, COOLDOWN_MS);
  assert.equal(await answer, 200);
  assert.equal(await listWith('the next one hangs'), 200);
  await until(() => provider.hanging.length === 2);
  assert.equal(provider.hanging[1]?.destroyed, false, 'the read is still pending');
});

test('unusable keys of the provider → ignored and logged at each read; forged tokens 40101', async (t) => {
  const { n = '', e = '' } = generateKeyPairSync('rsa', { modulusLength: 1_024 }).publicKey.export({
    format: 'jwk',
  });
  const unusable = [
    ['RS256', { kty: 'RSA', kid: 'short', n, e }],
    ['PS512', { kty: 'RSA', kid: 'empty' }],
    ['ES256', { kty: 'EC', kid: 'off the curve', crv: 'P-256', x: 'AA', y: 'AA' }],
    ['EdDSA', { kty: 'OKP', kid: 'cut off', crv: 'Ed25519', x: 'AA' }],
    ...fittingNoToken().map((jwk) => ['RS256', jwk] as const),
  ] as const;
  const forEncryption = { ...publicPartOf(firstKey.jwk), kid: 'not logged', use: 'enc' };
  const jwks = [...unusable.map(([, jwk]) => jwk), forEncryption, publicPartOf(firstKey.jwk)];
  const { service, provider } = await startStub(t, jwks);
  const exp = Math.floor((service.clock.now + KEPT_MS) / 1_000);
  const claimed = { iss: provider.issuer, aud: AUDIENCE, sub: 'alice', scope: 'plants:read', exp };
  assert.equal((await list(service, await sign(firstKey, claimed, 'at+jwt'))).status, 200);
  const loggedKids = () =>
    service.logLines.filter((line) => line.includes(UNUSABLE)).map((line) => JSON.parse(line).kid);
  const kids = unusable.map(([, { kid }]) => kid);
  assert.deepEqual(loggedKids(), kids);
  for (const [alg, { kid }] of unusable) {
    pass(service, COOLDOWN_MS);
    await assertInvalid(service, `${encode({ alg, kid })}.${encode(claimed)}.AAAA`, kid);
  }
  assert.deepEqual(loggedKids(), [kids, ...kids.map(() => kids)].flat());
  assert.ok(!service.logLines.some((line) => line.includes('"failed"')), 'any client could fill the log');
});

for (const { kid, ...jwk } of fittingNoToken()) {
  test(`the only key of the provider is unusable (${kid}) → 50302, logged as a failure`, async (t) => {
    const { service, provider } = await startStub(t, [{ kid, ...jwk }]);
    const exp = Math.floor(service.clock.now / 1_000) + 60;
    const claimed = { iss: provider.issuer, aud: AUDIENCE, sub: 'alice', scope: 'plants:read', exp };
    await assertUnavailable(service, `${encode({ alg: 'RS256', kid })}.${encode(claimed)}.AAAA`, 10);
    const [warning = ''] = service.logLines.filter((line) => line.includes(UNREADABLE));
    assert.match(JSON.parse(warning).err.message, /publishes no usable key/);
  });
}

test('the last usable key is withdrawn → 50302, logged as a failure, no keys in the metrics', async (t) => {
  const { service, provider } = await startStub(t, [publicPartOf(firstKey.jwk)]);
  const exp = Math.floor((service.clock.now + KEPT_MS) / 1_000);
  const claimed = { iss: provider.issuer, aud: AUDIENCE, sub: 'alice', scope: 'plants:read', exp };
  assert.equal((await list(service, await sign(firstKey, { ...claimed, jti: '1' }, 'at+jwt'))).status, 200);
  provider.keys = [{ ...publicPartOf(firstKey.jwk), use: 'enc' }];
  pass(service, STALE_MS + 1);
  assert.equal((await list(service, await sign(firstKey, { ...claimed, jti: '2' }, 'at+jwt'))).status, 503);
  assert.ok(service.logLines.some((line) => line.includes(UNREADABLE)));
  assert.ok(!service.logLines.some((line) => line.includes(UNUSABLE)));
  const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
  assert.match(metrics, /^plant_store_identity_provider_keys 0$/m);
});

test('malformed entries in the key set of the provider → ignored and logged', async (t) => {
  const malformed = [null, 'key', {}, { kid: 'first' }, { ...publicPartOf(firstKey.jwk), kty: 5 }];
  const { service, provider } = await startStub(t, [...malformed, publicPartOf(firstKey.jwk)]);
  const exp = Math.floor(service.clock.now / 1_000) + 60;
  const claimed = { iss: provider.issuer, aud: AUDIENCE, sub: 'alice', scope: 'plants:read', exp };
  assert.equal((await list(service, await sign(firstKey, claimed, 'at+jwt'))).status, 200);
  const problems = service.logLines
    .filter((line) => line.includes(UNUSABLE))
    .map((line) => JSON.parse(line).problem);
  assert.deepEqual(problems, [
    'keys/0 must be a JSON object',
    'keys/1 must be a JSON object',
    'keys/2/kty is required',
    'keys/3/kty is required',
    'keys/4/kty must be a string',
  ]);
});

/** Keys of which no token can be verified with any algorithm. */
function fittingNoToken() {
  const rsa = publicPartOf(firstKey.jwk);
  const secp256k1 = generateKeyPairSync('ec', { namedCurve: 'secp256k1' }).publicKey;
  const ed448 = generateKeyPairSync('ed448').publicKey;
  return [
    { ...rsa, kid: 'operations', key_ops: ['encrypt'] },
    { ...rsa, kid: 'algorithm', alg: 'HS256' },
    { ...firstKey.jwk, kid: 'private' },
    { kty: 'oct', kid: 'secret', k: 'AAAA' },
    { ...secp256k1.export({ format: 'jwk' }), kid: 'curve' },
    { ...ed448.export({ format: 'jwk' }), kid: 'Ed448' },
    { kty: 'AKP', alg: 'ML-DSA-44', kid: 'type', pub: 'AAAA' },
  ];
}

test('key without kid is replaced → found at once; forged tokens cause one read in 10 s', async (t) => {
  const [oldKey, newKey] = [await newSigningKey('old'), await newSigningKey('new')];
  const withoutKid = ({ jwk }: typeof oldKey) => ({ ...publicPartOf(jwk), kid: undefined });
  const { service, provider } = await startStub(t, [withoutKid(oldKey)]);
  const exp = Math.floor((service.clock.now + KEPT_MS) / 1_000);
  let serial = 0;
  const listBy = async ({ jwk }: typeof oldKey): Promise<number> => {
    serial += 1;
    const claimed = { iss: provider.issuer, aud: AUDIENCE, sub: 'alice', scope: 'plants:read', exp, serial };
    const token = await new SignJWT(claimed).setProtectedHeader({ alg: 'RS256', typ: 'at+jwt' }).sign(jwk);
    return (await list(service, token)).status;
  };
  assert.equal(await listBy(oldKey), 200);
  provider.keys = [withoutKid(newKey)];
  pass(service, COOLDOWN_MS);
  assert.equal(await listBy(newKey), 200);
  assert.equal(provider.keysRead, 2);
  pass(service, COOLDOWN_MS);
  assert.equal(await listBy(oldKey), 401, 'withdrawn');

  pass(service, COOLDOWN_MS);
  const forged = await Promise.all(Array.from({ length: 20 }, () => listBy(firstKey)));
  assert.deepEqual(new Set(forged), new Set([401, 503]));
  assert.equal(provider.keysRead, 4);

  provider.state = 'failing';
  pass(service, COOLDOWN_MS);
  assert.equal(await listBy(firstKey), 503, 'the provider may have a new key');
  assert.equal(await listBy(newKey), 200);
});

test('several keys without kid → verified with each of the first four; others 50302, then 40101', async (t) => {
  const keys = await Promise.all(Array.from({ length: 5 }, (_, index) => newSigningKey(`k${index}`)));
  const withoutKid = keys.map(({ jwk }) => ({ ...publicPartOf(jwk), kid: undefined }));
  const { service, provider } = await startStub(t, withoutKid);
  const exp = Math.floor(service.clock.now / 1_000) + 600;
  const claimed = { iss: provider.issuer, aud: AUDIENCE, sub: 'alice', scope: 'plants:read', exp };
  const [first, second, , , fifth] = await Promise.all(
    keys.map(({ jwk }) => new SignJWT(claimed).setProtectedHeader({ alg: 'RS256', typ: 'at+jwt' }).sign(jwk)),
  );
  assert.ok(first !== undefined && second !== undefined && fifth !== undefined);
  assert.equal((await list(service, first)).status, 200);
  assert.equal((await list(service, second)).status, 200);
  assert.equal((await list(service, fifth)).status, 503, 'the issuer may have withdrawn the others');
  provider.keys = withoutKid.slice(1);
  pass(service, COOLDOWN_MS);
  assert.equal((await list(service, fifth)).status, 200, 'one of four keys');
  pass(service, COOLDOWN_MS);
  await assertInvalid(service, first, 'withdrawn');
});

test('20 concurrent tokens with unknown keys → the keys are read once in 10 s', async (t) => {
  const setting = await start(t);
  const { provider, service } = setting;
  assert.equal((await list(service, await provider.accessToken())).status, 200);
  pass(service, COOLDOWN_MS);
  const tokens = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      sign({ jwk: { ...secondKey.jwk, kid: `k${index}` } }, claims(setting), 'at+jwt'),
    ),
  );
  const answers = await Promise.all(tokens.map((token) => list(service, token)));
  for (const { status } of answers) assert.ok(status === 401 || status === 503, String(status));
  assert.equal(provider.keysRead, 2);
});

test('new key within 10 s of the last read → 50302 with Retry-After, then 200', async (t) => {
  const setting = await start(t);
  const { provider, service } = setting;
  assert.equal((await list(service, await provider.accessToken())).status, 200);
  pass(service, COOLDOWN_MS);
  const stranger = await sign(secondKey, claims(setting), 'at+jwt');
  await assertInvalid(service, stranger, 'an unknown key');
  provider.rotate(await newSigningKey('third'));
  const fresh = await provider.accessToken();
  pass(service, 2_500);
  await assertUnavailable(service, fresh, 8);
  await assertInvalid(service, stranger, 'the same key, looked up just before');
  assert.equal(provider.keysRead, 2);
  pass(service, 7_500);
  assert.equal((await list(service, fresh)).status, 200);
  assert.equal(provider.keysRead, 3);
});

test('provider down → known keys stay valid; unknown keys → 50302 until it is up', async (t) => {
  const { provider, service } = await start(t);
  const [known, ...later] = await Promise.all(Array.from({ length: 4 }, () => provider.accessToken()));
  assert.equal((await list(service, String(known))).status, 200);
  provider.rotate(secondKey);
  const fresh = await provider.accessToken();
  await provider.goDown();

  pass(service, STALE_MS + 1);
  for (const token of later) {
    assert.equal((await list(service, token)).status, 200);
    await assertUnavailable(service, fresh, 10);
  }
  const warnings = service.logLines.filter((line) => line.includes(UNREADABLE));
  assert.equal(warnings.length, 1, 'the keys were requested once');
  assert.ok(!service.logLines.some((line) => line.includes('"failed"')), 'any client could fill the log');

  await provider.comeUp();
  pass(service, COOLDOWN_MS);
  assert.equal((await list(service, fresh)).status, 200);
});

test('provider down for a day → known keys expire; metrics show it', async (t) => {
  const setting = await start(t);
  const { provider, service } = setting;
  const exp = Math.floor((service.clock.now + 2 * KEPT_MS) / 1_000);
  const token = (jti: string) => sign(firstKey, claims(setting, { exp, jti }), 'at+jwt');
  const answers = 'http_request_duration_seconds_count{operation="listPlants",status="503",error="50302"}';
  const metrics = async () => {
    const lines = (await (await fetch(`${service.adminUrl}/metrics`)).text()).split('\n');
    return ['identity_provider_keys', 'identity_provider_failing_seconds', answers].map((name) =>
      Number(lines.find((line) => line.startsWith(`plant_store_${name} `))?.split(' ')[1] ?? 0),
    );
  };
  assert.equal((await list(service, await token('1'))).status, 200);
  assert.deepEqual(await metrics(), [1, 0, 0]);
  await provider.goDown();
  pass(service, KEPT_MS - 1_000);
  assert.equal((await list(service, await token('2'))).status, 200);
  assert.deepEqual(await metrics(), [1, 0, 0]);
  pass(service, COOLDOWN_MS);
  assert.equal((await list(service, await token('3'))).status, 503);
  assert.deepEqual(await metrics(), [0, COOLDOWN_MS / 1_000, 1]);
  await provider.comeUp();
  pass(service, COOLDOWN_MS);
  assert.equal((await list(service, await token('4'))).status, 200);
  assert.deepEqual(await metrics(), [1, 0, 1]);
});

test('provider down at start → the service starts; provider up → tokens valid', async (t) => {
  const provider = await startIdentityProvider(t, firstKey);
  const token = await provider.accessToken();
  await provider.goDown();
  const service = await serve(t, provider.issuer);
  assert.equal((await list(service, token)).status, 503);
  assert.equal(
    (await list(service, await service.token())).status,
    200,
    'tokens of the service need no provider',
  );
  await assertInvalid(service, 'x', 'malformed tokens need no provider either');
  await provider.comeUp();
  pass(service, COOLDOWN_MS);
  assert.equal((await list(service, token)).status, 200);
});

test('invalid documents of the provider → 50302, reason in the log', async (t) => {
  const answers: readonly (readonly [what: RegExp, body: (issuer: string) => unknown])[] = [
    [
      /names the issuer https:\/\/other\.example, but --oidc-issuer is/,
      () => ({ issuer: 'https://other.example', jwks_uri: 'x' }),
    ],
    [/jwks_uri is required/, (issuer) => ({ issuer })],
    [/keys is required/, (issuer) => ({ issuer, jwks_uri: `${issuer}/keys` })],
    [/publishes no usable key/, (issuer) => ({ issuer, jwks_uri: `${issuer}/keys`, keys: [] })],
    [/returned status 404/, () => undefined],
  ];
  for (const [what, body] of answers) {
    let issuer = '';
    issuer = await serveHttp(t, (_request, response) => {
      const text = JSON.stringify(body(issuer));
      response.writeHead(text === undefined ? 404 : 200).end(text);
    });
    const service = await serve(t, issuer);
    const exp = Math.floor(service.clock.now / 1_000) + 60;
    const token = await sign(firstKey, { iss: issuer, aud: AUDIENCE, sub: 'alice', exp }, 'at+jwt');
    assert.equal((await list(service, token)).status, 503);
    const [warning = ''] = service.logLines.filter((line) => line.includes(UNREADABLE));
    assert.match(JSON.parse(warning).err.message, what);
  }
});

test('several keys with the id of the token → verified with each of the first four', async (t) => {
  const keys = await Promise.all(Array.from({ length: 5 }, () => newSigningKey('first')));
  const { service, provider } = await startStub(
    t,
    keys.map(({ jwk }) => publicPartOf(jwk)),
  );
  const exp = Math.floor(service.clock.now / 1_000) + 600;
  const claimed = { iss: provider.issuer, aud: AUDIENCE, sub: 'alice', exp, scope: 'plants:read' };
  for (const [index, key] of keys.entries()) {
    const token = await sign(key, claimed, 'at+jwt');
    if (index < 4) assert.equal((await list(service, token)).status, 200, `key ${index}`);
    else await assertInvalid(service, token, 'beyond the limit');
  }
  const [first = assert.fail()] = keys;
  await assertInvalid(service, await sign(first, { ...claimed, exp: exp - 6_000 }, 'at+jwt'), 'expired');
  const last = service.logLines.findLast((line) => line.includes('"tokenRefused"')) ?? '';
  assert.equal(JSON.parse(last).reason, 'expired', 'the other keys are not tried');
  pass(service, COOLDOWN_MS);
  await assertInvalid(service, await sign(firstKey, claimed, 'at+jwt'), 'another key with this id');
  assert.equal(provider.keysRead, 1, 'the keys are known, so they are not read again');
});

test('https issuer → its keys must have an https URL too', async (t) => {
  const [cert, key] = await Promise.all(
    ['pem', 'key'].map((kind) =>
      readFile(new URL(`../../support/certificates/first.${kind}`, import.meta.url), 'utf8'),
    ),
  );
  assert.ok(cert !== undefined && key !== undefined);
  const trusted = getCACertificates();
  setDefaultCACertificates([...trusted, cert]);
  t.after(() => setDefaultCACertificates(trusted));
  const keysUrl = await serveHttp(t, (_request, response) => {
    response.end(JSON.stringify({ keys: [publicPartOf(firstKey.jwk)] }));
  });
  let issuer = '';
  const provider = createServer({ cert, key }, ({ url }, response) => {
    const isKeys = url === '/keys';
    const jwks_uri = url?.startsWith('/plain') ? keysUrl : `${new URL(issuer).origin}/keys`;
    response.end(JSON.stringify(isKeys ? { keys: [publicPartOf(firstKey.jwk)] } : { issuer, jwks_uri }));
  });
  const origin = `https://localhost:${await listenOnFreePort(provider)}`;
  t.after(() => {
    provider.close();
    provider.closeAllConnections();
  });
  for (const [path, status] of [
    ['', 200],
    ['/plain', 503],
  ] as const) {
    issuer = origin + path;
    const service = await serve(t, issuer);
    const exp = Math.floor(service.clock.now / 1_000) + 60;
    const claimed = { iss: issuer, aud: AUDIENCE, sub: 'alice', exp, scope: 'plants:read' };
    const answer = await list(service, await sign(firstKey, claimed, 'at+jwt'));
    assert.equal(answer.status, status, path);
    const [warning] = service.logLines.filter((line) => line.includes(UNREADABLE));
    if (status === 503) assert.match(warning ?? '', /jwks_uri in .* must be an https URL/);
    else assert.equal(warning, undefined);
  }
});

test('no OIDC settings → a JWT is an invalid token', async (t) => {
  const provider = await startIdentityProvider(t, firstKey);
  const service = await startService(t, `sqlite:${join(await freshFolder(), 'plants.db')}`);
  await assertInvalid(service, await provider.accessToken(), 'a good JWT');
  assert.equal(provider.keysRead, 0);
});

function publicPartOf({ kty = '', n = '', e = '', kid }: JWK) {
  return { kty, n, e, kid };
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
