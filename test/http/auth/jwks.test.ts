import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { errors } from 'jose';
import { COOLDOWN_MS, createIssuerKeys, MAX_LOOKED_UP } from '../../../src/http/auth/jwks.ts';
import { until } from '../../support/patience.ts';
import { serve } from '../../support/servers/stub-server.ts';

test('more unknown keys than are remembered wait for one read → the first one is looked up again', async (t) => {
  const pending: ServerResponse[] = [];
  let isSlow = false;
  let issuer = '';
  const answer = (response: ServerResponse): void =>
    void response.end(JSON.stringify({ issuer, jwks_uri: `${issuer}/keys`, keys: [] }));
  issuer = await serve(t, (_request, response) => (isSlow ? void pending.push(response) : answer(response)));
  let now = Date.now();
  const keys = createIssuerKeys({
    issuer,
    now: () => now,
    closed: new AbortController().signal,
    onUnreadable: (error) => assert.fail(String(error)),
    onUnusableKey: assert.fail,
  });
  const verify = (kid: number): Promise<unknown> =>
    keys((findKey) => findKey({ alg: 'ES256', kid: String(kid) }, { payload: '', signature: '' }));
  await assert.rejects(verify(0), errors.JWKSNoMatchingKey);
  now += COOLDOWN_MS;
  isSlow = true;
  const all = Array.from({ length: MAX_LOOKED_UP + 1 }, (_, kid) => assert.rejects(verify(kid)));
  await until(() => pending.length > 0);
  isSlow = false;
  pending.forEach(answer);
  await Promise.all(all);
  await assert.rejects(verify(MAX_LOOKED_UP), errors.JWKSNoMatchingKey);
  await assert.rejects(verify(0), { code: 50302 });
});
