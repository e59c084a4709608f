import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { TOKEN_FRESH_MS } from '../../../src/http/auth/authentication.ts';
import { createRejectedTokens } from '../../../src/http/auth/rate-limit.ts';
import { digestSecret, mintSecret } from '../../../src/token.ts';
import { sqlite } from '../../support/engines.ts';
import {
  AUDIENCE,
  newSigningKey,
  sign,
  startIdentityProvider,
} from '../../support/servers/identity-provider.ts';
import { bearer, startService, type TestService } from '../../support/service.ts';

const MINUTE_MS = 60_000;
const BASE64URL = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

describe('invalid tokens', () => {
  it('above the limit of an address → 42900, except for tokens that were valid before', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t), { refusedTokenLimit: '3' });
    const [known, fresh] = [await service.token(), await service.token()];
    assert.equal(await statusOf(service, known), 200);
    for (let times = 0; times < 3; times += 1) assert.equal(await statusOf(service, mintSecret()), 401);
    await assertTooMany(await list(service, mintSecret()));
    await assertTooMany(await list(service, 'not-even-a-token'));
    await assertTooMany(await list(service, fresh));
    assert.equal(await statusOf(service, known), 200);
    const respelled = { authorization: `bearer  ${known}` };
    assert.equal((await fetch(`${service.url}/plants`, { headers: respelled })).status, 200);
    // A request without credentials does not count.
    assert.equal((await fetch(`${service.url}/plants`)).status, 401);
    service.clock.monotonic += MINUTE_MS + 1;
    assert.equal(await statusOf(service, fresh), 200);
    assert.equal(await statusOf(service, mintSecret()), 401);
  });

  it('above the limit of an address → a valid token without the scope is looked up again, 40300', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t), { refusedTokenLimit: '1' });
    const writer = await service.token('alice', { scopes: ['plants:write'] });
    assert.equal(await statusOf(service, writer), 403);
    assert.equal(await statusOf(service, mintSecret()), 401);
    service.clock.now += TOKEN_FRESH_MS;
    assert.equal(await statusOf(service, writer), 403);
  });

  it('repeated token → counts once for its address; above the limit, the same 401 without a lookup', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t), { refusedTokenLimit: '2' });
    const [revoked, other, fresh] = [mintSecret(), mintSecret(), await service.token()];
    for (let times = 0; times < 2; times += 1) assert.equal(await statusOf(service, revoked), 401);
    await assertKnownInvalid(service, revoked);
    assert.equal(await statusOf(service, fresh), 200);
    assert.equal(await statusOf(service, other), 401);
    await assertTooMany(await list(service, mintSecret()));
  });

  it('token was valid and is revoked → the same', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t), { refusedTokenLimit: '2' });
    const [revoked, known] = [await service.token(), await service.token()];
    for (const secret of [revoked, known]) assert.equal(await statusOf(service, secret), 200);
    const { id = assert.fail() } = (await service.store.findToken(digestSecret(revoked))) ?? {};
    await service.store.write({ kind: 'revokeToken', id, at: Date.now() });
    service.clock.now += TOKEN_FRESH_MS;
    for (let round = 0; round < 2; round += 1) assert.equal(await statusOf(service, revoked), 401);
    await assertKnownInvalid(service, revoked);
    assert.equal(await statusOf(service, known), 200);
  });

  it('token expires after its use → the same', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t), { refusedTokenLimit: '2' });
    const expiring = await service.token('alice', { expiresAt: service.clock.now + MINUTE_MS });
    assert.equal(await statusOf(service, expiring), 200);
    service.clock.now += MINUTE_MS;
    for (let times = 0; times < 2; times += 1) assert.equal(await statusOf(service, expiring), 401);
    await assertKnownInvalid(service, expiring);
  });

  it('forged JWTs with ever new keys → 50302, above the limit 42900; a valid JWT is not affected', async (t) => {
    const provider = await startIdentityProvider(t, await newSigningKey('key'));
    const flags = { refusedTokenLimit: '3', oidcIssuer: provider.issuer, oidcAudience: AUDIENCE };
    const service = await startService(t, await sqlite.freshUrl(t), flags);
    const valid = await provider.accessToken();
    assert.equal(await statusOf(service, valid), 200);
    const exp = Math.floor(service.clock.now / 1_000) + 600;
    const claims = { iss: provider.issuer, aud: AUDIENCE, sub: 'alice', scope: 'plants:read', exp };
    const { jwk } = await newSigningKey('forged', 'ES256');
    const forged = await Promise.all(
      ['1', '2', '3', '4'].map((kid) => sign({ jwk: { ...jwk, kid } }, claims, 'at+jwt')),
    );
    const [first = assert.fail(), ...rest] = forged;
    for (let times = 0; times < 4; times += 1)
      assert.equal(await statusOf(service, first), 503, 'a token counts once');
    assert.deepEqual(
      [await statusOf(service, String(rest[0])), await statusOf(service, String(rest[1]))],
      [503, 503],
    );
    await assertTooMany(await list(service, String(rest[2])));
    assert.equal(await statusOf(service, valid), 200);
  });

  it('window over → a new one, however soon the clock is read again', () => {
    let now = 1;
    const rejectedTokens = createRejectedTokens(1, () => now);
    rejectedTokens.rejected('192.0.2.1', 'first');
    assert.throws(() => rejectedTokens.rejectBeyond('192.0.2.1', 'second'), { code: 42900 });
    now += MINUTE_MS + 1;
    rejectedTokens.rejectBeyond('192.0.2.1', 'second');
  });

  it('many clients send X-Forwarded-For → the log names the first ten addresses', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t), { host: '0.0.0.0' });
    const { port } = new URL(service.url);
    const addresses = Array.from({ length: 12 }, (_, host) => `127.0.0.${host + 2}`);
    for (const localAddress of addresses) {
      const socket = connect({ port: Number(port), host: '127.0.0.1', localAddress });
      const headers = `Host: x\r\nAuthorization: Bearer ${mintSecret()}\r\nX-Forwarded-For: 192.0.2.1`;
      socket.end(`GET /plants HTTP/1.1\r\n${headers}\r\nConnection: close\r\n\r\n`);
      assert.match(await text(socket), /^HTTP\/1\.1 401 /);
    }
    assert.deepEqual(
      mistakenProxies(service),
      addresses.slice(0, 10).map((address) => `X-Forwarded-For was ignored: ${address}`),
    );
  });

  it('X-Forwarded-For → used only from a trusted proxy', async (t) => {
    const limit = { refusedTokenLimit: '1' };
    const trusting = await startService(t, await sqlite.freshUrl(t), { ...limit, trustProxy: '127.0.0.1' });
    assert.equal(await statusOf(trusting, mintSecret(), '192.0.2.1'), 401);
    assert.equal(await statusOf(trusting, mintSecret(), '192.0.2.1'), 429);
    assert.equal(await statusOf(trusting, mintSecret(), '192.0.2.2'), 401);
    assert.equal(await statusOf(trusting, mintSecret(), '192.0.2.9, 192.0.2.2'), 429);
    // Some gateways write the port of their client, which here is another proxy.
    assert.equal(await statusOf(trusting, mintSecret(), '192.0.2.5:4711, 127.0.0.1:61000'), 401);
    assert.equal(await statusOf(trusting, mintSecret(), '192.0.2.5:4712, 127.0.0.1:61001'), 429);
    assert.equal(await statusOf(trusting, mintSecret(), '192.0.2.6:4711, 127.0.0.1:61001'), 401);
    assert.deepEqual(mistakenProxies(trusting), []);
    for (let times = 0; times < 2; times += 1) await statusOf(trusting, mintSecret());
    assert.deepEqual(mistakenProxies(trusting), ['no X-Forwarded-For: 127.0.0.1'], 'logged once');
    const distrusting = await startService(t, await sqlite.freshUrl(t), limit);
    assert.equal(await statusOf(distrusting, mintSecret(), '192.0.2.1'), 401);
    assert.equal(await statusOf(distrusting, mintSecret(), '192.0.2.2'), 429);
    const ofAnother = await startService(t, await sqlite.freshUrl(t), { trustProxy: '192.0.2.1' });
    assert.equal(await statusOf(ofAnother, mintSecret()), 401);
    assert.deepEqual(mistakenProxies(ofAnother), []);
    assert.equal(await statusOf(distrusting, mintSecret()), 429);
    assert.deepEqual(mistakenProxies(distrusting), ['X-Forwarded-For was ignored: 127.0.0.1'], 'logged once');
  });
});

/** Returns the beginning and the address of each log line about a proxy. */
function mistakenProxies({ logLines }: TestService): readonly string[] {
  const lines = logLines.map((line): Record<string, unknown> => JSON.parse(line));
  return lines.flatMap(({ msg, address }) => {
    const begin = /^(?:no X-Forwarded-For|X-Forwarded-For was ignored)/.exec(String(msg))?.[0];
    return begin === undefined ? [] : `${begin}: ${address}`;
  });
}

describe('requests of a token', () => {
  it('above the limit of a token → 42900 for all operations; other tokens are not affected', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t), { tokenRateLimit: '2' });
    const [busy, other] = [await service.token(), await service.token()];
    for (let times = 0; times < 2; times += 1) assert.equal(await statusOf(service, busy), 200);
    await assertTooMany(await list(service, busy));
    const remove = { method: 'DELETE', headers: bearer(busy) };
    await assertTooMany(await fetch(`${service.url}/plants/1`, remove));
    assert.equal(await statusOf(service, other), 200);
    service.clock.monotonic += MINUTE_MS + 1;
    assert.equal(await statusOf(service, busy), 200);
  });

  for (const [title, step] of [
    ['set back', -3_600_000],
    ['set forward', 7_200_000],
  ] as const)
    it(`wall clock ${title} → the window is unchanged`, async (t) => {
      const service = await startService(t, await sqlite.freshUrl(t), { tokenRateLimit: '1' });
      const token = await service.token();
      assert.equal(await statusOf(service, token), 200);
      service.clock.now += step;
      await assertTooMany(await list(service, token));
      service.clock.monotonic += MINUTE_MS + 1;
      assert.equal(await statusOf(service, token), 200);
    });

  it('JWTs of one owner share a limit; other encoding of a JWT → 40101', async (t) => {
    const provider = await startIdentityProvider(t, await newSigningKey('key'));
    const flags = { tokenRateLimit: '2', oidcIssuer: provider.issuer, oidcAudience: AUDIENCE };
    const service = await startService(t, await sqlite.freshUrl(t), flags);
    const first = await provider.accessToken();
    const bits = BASE64URL.indexOf(first.slice(-1));
    const equivalent = first.slice(0, -1) + BASE64URL.charAt(bits ^ 1);
    assert.deepEqual(
      Buffer.from(equivalent.split('.')[2] ?? '', 'base64url'),
      Buffer.from(first.split('.')[2] ?? '', 'base64url'),
    );
    assert.equal(await statusOf(service, equivalent), 401);
    assert.equal(await statusOf(service, first), 200);
    assert.equal(await statusOf(service, await provider.accessToken()), 200);
    await assertTooMany(await list(service, await provider.accessToken()));
    assert.equal(await statusOf(service, await provider.accessToken({ client: 'alice' })), 200);
  });

  it('other case or spaces in Authorization → same limit', async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t), { tokenRateLimit: '2' });
    const token = await service.token();
    const spelled = (authorization: string): Promise<Response> =>
      fetch(`${service.url}/plants`, { headers: { authorization } });
    assert.equal((await spelled(`Bearer ${token}`)).status, 200);
    assert.equal((await spelled(`BEARER  ${token}`)).status, 200);
    for (const scheme of ['Bearer ', 'bearer ', 'Bearer  ', 'BEARER   '])
      await assertTooMany(await spelled(scheme + token));
  });
});

function list({ url }: TestService, token: string, forwardedFor?: string): Promise<Response> {
  const forwarded = forwardedFor === undefined ? {} : { 'x-forwarded-for': forwardedFor };
  return fetch(`${url}/plants`, { headers: { ...bearer(token), ...forwarded } });
}

async function statusOf(service: TestService, token: string, forwardedFor?: string): Promise<number> {
  const response = await list(service, token, forwardedFor);
  await response.arrayBuffer();
  return response.status;
}

/** Asserts that an invalid token gets a 401 without a lookup. */
async function assertKnownInvalid(service: TestService, token: string): Promise<void> {
  const before = await lookups(service);
  const response = await list(service, token);
  assert.equal(response.status, 401);
  assert.match(response.headers.get('www-authenticate') ?? '', /error="invalid_token"$/);
  assert.match(await response.text(), /^\{"error":40101,/);
  assert.equal(await lookups(service), before);
}

async function lookups({ adminUrl }: TestService): Promise<string> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text();
  const [, count = assert.fail(text)] =
    /^plant_store_token_lookups_total\{cache="miss"\} (\d+)$/m.exec(text) ?? [];
  return count;
}

async function assertTooMany(response: Response): Promise<void> {
  assert.equal(response.status, 429);
  const seconds = Number(response.headers.get('retry-after'));
  assert.ok(seconds >= 1 && seconds <= 60, `Retry-After: ${seconds}`);
  assert.equal(response.headers.get('cache-control'), 'no-store');
  assert.match(response.headers.get('x-request-id') ?? '', /^[\w-]{8,}$/);
  assert.match(await response.text(), /^\{"error":42900,"message":"[^"]+; retry in \d+ s"\}$/);
}
