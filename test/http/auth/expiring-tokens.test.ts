import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  IN_USE_MS,
  LOG_EVERY_MS,
  MIN_LIFETIME_MS,
  NOTICE_MS,
} from '../../../src/http/auth/expiring-tokens.ts';
import { engines } from '../../support/engines.ts';
import { bearer, startService, type TestService } from '../../support/service.ts';

const HOUR_MS = 60 * 60 * 1_000;
const DAY_MS = 24 * HOUR_MS;

async function list({ url }: TestService, token: string): Promise<number> {
  return (await fetch(`${url}/plants`, { headers: bearer(token) })).status;
}

/** Returns the gauge of expiring tokens, and the owners in the log lines about them so far. */
async function noticed({ adminUrl, logLines }: TestService) {
  const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
  const gauge = /^plant_store_expiring_tokens (\S+)$/m.exec(metrics)?.[1];
  const lines = logLines.map((line): Record<string, unknown> => JSON.parse(line));
  const ofExpiry = lines.filter(({ audit }) => audit === 'tokenExpiresSoon');
  return { gauge, owners: ofExpiry.map(({ owner }) => owner) };
}

for (const engine of engines) {
  test(`a token in use expires within a week → logged once a day and counted, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const { clock } = service;
    const expiresAt = clock.now + 90 * DAY_MS;
    const token = await service.token('alice', { expiresAt });
    clock.now = expiresAt - NOTICE_MS - 1;
    assert.equal(await list(service, token), 200);
    assert.deepEqual(await noticed(service), { gauge: '0', owners: [] });

    clock.now += 1;
    assert.equal(await list(service, token), 200);
    clock.now += LOG_EVERY_MS - 1;
    assert.equal(await list(service, token), 200);
    assert.deepEqual(await noticed(service), { gauge: '1', owners: ['alice'] });
    const [line = ''] = service.logLines.filter((one) => one.includes('tokenExpiresSoon'));
    const { level, expires, address }: Record<string, unknown> = JSON.parse(line);
    assert.deepEqual([level, expires, address], [40, new Date(expiresAt).toISOString(), '127.0.0.1']);

    clock.now += IN_USE_MS - 1;
    assert.deepEqual(await noticed(service), { gauge: '1', owners: ['alice'] });
    clock.now += 1;
    assert.deepEqual(await noticed(service), { gauge: '0', owners: ['alice'] }, 'no longer in use');
    assert.equal(await list(service, token), 200);
    assert.deepEqual(await noticed(service), { gauge: '1', owners: ['alice', 'alice'] });

    clock.now = expiresAt - 1;
    assert.equal(await list(service, token), 200);
    clock.now += 1;
    assert.equal(await list(service, token), 401);
    assert.deepEqual(
      await noticed(service),
      { gauge: '1', owners: ['alice', 'alice', 'alice'] },
      'its program fails',
    );
    clock.now += IN_USE_MS;
    assert.deepEqual(await noticed(service), { gauge: '0', owners: ['alice', 'alice', 'alice'] });
  });

  test(`a token that was made for less than four weeks, or never expires → not noticed, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const { now } = service.clock;
    const tokens = [
      await service.token('alice', { expiresAt: now + MIN_LIFETIME_MS - 1 }),
      await service.token('bob', { expiresAt: null }),
      await service.token('carol', { expiresAt: now + MIN_LIFETIME_MS }),
    ];
    service.clock.now += MIN_LIFETIME_MS - HOUR_MS;
    for (const token of tokens) assert.equal(await list(service, token), 200);
    assert.deepEqual(await noticed(service), { gauge: '1', owners: ['carol'] });
  });

  test(`two tokens of an owner → each is noticed; a clock was fast for a while → not counted afterwards, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const { now } = service.clock;
    const expiresAt = now + 90 * DAY_MS;
    const tokens = [await service.token('alice', { expiresAt }), await service.token('alice', { expiresAt })];
    service.clock.now += 85 * DAY_MS;
    for (const token of tokens) assert.equal(await list(service, token), 200);
    assert.deepEqual(await noticed(service), { gauge: '2', owners: ['alice', 'alice'] });
    service.clock.now = now;
    assert.deepEqual(await noticed(service), { gauge: '0', owners: ['alice', 'alice'] });
  });
}
