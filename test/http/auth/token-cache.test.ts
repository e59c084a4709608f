import assert from 'node:assert/strict';
import { Agent, get } from 'node:http';
import { test } from 'node:test';
import { MAX_JWT_LENGTH } from '../../../src/http/auth/oidc.ts';
import { sqlite } from '../../support/engines.ts';
import { usedHeap } from '../../support/process-resources.ts';
import { AUDIENCE, newSigningKey, sign } from '../../support/servers/identity-provider.ts';
import { serve } from '../../support/servers/stub-server.ts';
import { bearer, startService } from '../../support/service.ts';

const TOKENS = 4_000;
const CONCURRENCY = 20;
/** Room for the claims that differ, the header and the signature. */
const PADDING = (3 * (MAX_JWT_LENGTH - 700)) / 4;
const MEBIBYTE = 2 ** 20;

test('thousands of long JWTs of one user → the cache keeps few of them', async (t) => {
  const key = await newSigningKey('key', 'ES256');
  const { kty, crv, x, y, kid } = key.jwk;
  let issuer = '';
  issuer = await serve(t, (_request, response) => {
    response.end(JSON.stringify({ issuer, jwks_uri: `${issuer}/keys`, keys: [{ kty, crv, x, y, kid }] }));
  });
  const flags = { oidcIssuer: issuer, oidcAudience: AUDIENCE };
  const service = await startService(t, await sqlite.freshUrl(t), flags);
  const agent = new Agent({ keepAlive: true, maxSockets: CONCURRENCY });
  t.after(() => agent.destroy());
  const exp = Math.floor(service.clock.now / 1_000) + 600;
  const padding = 'x'.repeat(PADDING);
  let longest = 0;

  async function list(jti: number): Promise<void> {
    const claimed = {
      iss: issuer,
      aud: AUDIENCE,
      sub: 'alice',
      scope: 'plants:read',
      exp,
      jti: String(jti),
      padding,
    };
    const token = await sign(key, claimed, 'at+jwt');
    longest = Math.max(longest, token.length);
    const { promise, resolve } = Promise.withResolvers<number | undefined>();
    get(`${service.url}/plants?limit=1`, { agent, headers: bearer(token) }, (response) => {
      response.resume().on('end', () => resolve(response.statusCode));
    });
    assert.equal(await promise, 200);
  }

  async function listMany(from: number, count: number): Promise<void> {
    for (let jti = from; jti < from + count; jti += CONCURRENCY)
      await Promise.all(Array.from({ length: CONCURRENCY }, (_, index) => list(jti + index)));
  }

  await listMany(0, CONCURRENCY);
  const before = usedHeap();
  await listMany(CONCURRENCY, TOKENS);
  const growth = usedHeap() - before;
  assert.ok(longest > 0.95 * MAX_JWT_LENGTH);
  assert.ok(growth < 24 * MEBIBYTE, `grown by ${Math.round(growth / MEBIBYTE)} MiB`);
});
