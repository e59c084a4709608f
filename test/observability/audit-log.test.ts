import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import pg from 'pg';
import { createAudit } from '../../src/observability/audit-log.ts';
import { digestSecret, isWellFormedSecret, mintSecret, type Token } from '../../src/token.ts';
import { secretPart } from '../support/data/secret-part.ts';
import { engines, postgres } from '../support/engines.ts';
import { until } from '../support/patience.ts';
import { type LogLine, newInstallation } from '../support/program.ts';
import { repetitions } from '../support/repetitions.ts';
import { bearer, startService, type TestService } from '../support/service.ts';
import { listTokens } from '../support/store-setup.ts';

const MINUTE_MS = 60_000;

const CANCEL_WHAT_WAITS = `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                            WHERE datname = current_database() AND wait_event_type = 'Lock'`;

function eventsIn(lines: readonly string[]): LogLine[] {
  return lines.map((line): LogLine => JSON.parse(line)).filter(({ audit }) => audit !== undefined);
}

/** Waits for a number of audit events of a service. */
async function events({ logLines }: TestService, count: number): Promise<LogLine[]> {
  await until(() => eventsIn(logLines).length >= count);
  const found = eventsIn(logLines);
  assert.equal(found.length, count, JSON.stringify(found));
  return found;
}

async function list({ url }: TestService, secret: string): Promise<{ status: number; requestId: string }> {
  const answer = await fetch(`${url}/plants`, { headers: bearer(secret) });
  await answer.text();
  return { status: answer.status, requestId: answer.headers.get('x-request-id') ?? '' };
}

async function tokenOf({ config }: TestService, secret: string): Promise<Token> {
  const digest = Buffer.from(digestSecret(secret)).toString('hex');
  const all = await listTokens(config.databaseUrl);
  const found = all.find((token) => Buffer.from(token.digest).toString('hex') === digest);
  assert.ok(found !== undefined);
  return found;
}

async function startTwo(t: TestContext, url: string): Promise<readonly [TestService, TestService]> {
  return [await startService(t, url), await startService(t, url)];
}

for (const engine of engines) {
  test(`first use of a token → logged once, by one of all instances, on ${engine.name}`, async (t) => {
    const services = await startTwo(t, await engine.freshUrl(t));
    const [one, other] = services;
    const secret = await one.token();
    const { id } = await tokenOf(one, secret);
    const asked = await Promise.all([one, other, one, other].map((service) => list(service, secret)));
    assert.deepEqual(new Set(asked.map(({ status }) => status)), new Set([200]));
    // Resolves after the writes of the first uses. Applied later, one of them would be a minute older than the last use.
    for (const { store, clock } of services)
      await store.write({ kind: 'recordTokenUse', id: 'nosuchtoken1', at: clock.now });
    for (const service of services) {
      service.clock.now += MINUTE_MS;
      await list(service, secret);
    }
    await Promise.all(services.map((service) => service.close()));
    const logged = eventsIn(services.flatMap(({ logLines }) => logLines));
    assert.equal(logged.length, 1, JSON.stringify(logged));
    const [{ audit, token, owner, address, requestId, level } = {}] = logged;
    assert.deepEqual(
      { audit, token, owner, address, level },
      { audit: 'tokenFirstUsed', token: id, owner: 'alice', address: '127.0.0.1', level: 30 },
    );
    assert.ok(asked.some((one) => one.requestId === requestId));
  });

  test(`rejected tokens → each reason is logged, with the token if known, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const { clock } = service;
    const secrets = {
      expired: await service.token('alice', { expiresAt: clock.now }),
      revoked: await service.token('bob'),
      insufficientScope: await service.token('carol', { scopes: ['plants:write'] }),
    };
    await service.store.write({
      kind: 'revokeToken',
      id: (await tokenOf(service, secrets.revoked)).id,
      at: clock.now,
    });
    const expected: object[] = [];
    for (const [reason, secret] of Object.entries(secrets)) {
      const { requestId } = await list(service, secret);
      const { id, owner } = await tokenOf(service, secret);
      expected.push({ audit: 'tokenRefused', reason, token: id, owner, address: '127.0.0.1', requestId });
    }
    const { requestId } = await list(service, mintSecret());
    expected.push({ audit: 'tokenRefused', reason: 'unknown', address: '127.0.0.1', requestId });
    const quoted = await list(service, `"${mintSecret()}"`);
    expected.push({
      audit: 'tokenRefused',
      reason: 'malformed',
      address: '127.0.0.1',
      requestId: quoted.requestId,
    });
    const logged = await events(service, expected.length);
    assert.deepEqual(
      logged.map(({ time, msg, level, ...event }) => event),
      expected,
    );
    assert.deepEqual(new Set(logged.map(({ level }) => level)), new Set([40]));
    await service.close();
    for (const secret of Object.values(secrets))
      assert.ok(!service.logLines.join('').includes(secretPart(secret)), 'the log holds a token');
  });

  test(`many guesses → one line per minute and reason, and one with the rest at the stop, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const guesses = Array.from({ length: repetitions(1_000) }, (_, index) =>
      index % 2 === 0 ? mintSecret() : `guess-${index}`,
    );
    for (let from = 0; from < guesses.length; from += 50) {
      const statuses = await Promise.all(guesses.slice(from, from + 50).map((guess) => list(service, guess)));
      assert.ok(statuses.every(({ status }) => status === 401));
    }
    await service.close();
    assert.deepEqual(
      eventsIn(service.logLines)
        .map(({ audit, reason, more }) => [audit, reason, more])
        .sort(),
      [
        ['tokenRefused', 'malformed', undefined],
        ['tokenRefused', 'unknown', undefined],
        ['tokensRefused', undefined, guesses.length - 2],
      ],
    );
  });

  test(`unknown tokens of 100 addresses of an IPv6 network → a revoked one is in the log, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t), { trustProxy: '127.0.0.1' });
    const secret = await service.token();
    const { id } = await tokenOf(service, secret);
    await service.store.write({ kind: 'revokeToken', id, at: service.clock.now });
    for (let host = 1; host <= 100; host += 1) {
      const headers = { ...bearer(mintSecret()), 'x-forwarded-for': `2001:db8:1:1::${host.toString(16)}` };
      assert.equal((await fetch(`${service.url}/plants`, { headers })).status, 401);
    }
    assert.equal((await list(service, secret)).status, 401);
    const logged = await events(service, 2);
    assert.deepEqual(
      logged.map(({ reason, token, address }) => ({ reason, token, address })),
      [
        { reason: 'unknown', token: undefined, address: '2001:db8:1:1::1' },
        { reason: 'revoked', token: id, address: '127.0.0.1' },
      ],
    );
  });

  test(`token create and revoke → a JSON line on standard error, on ${engine.name}`, async (t) => {
    const installation = await newInstallation(t);
    const env = { DATABASE_URL: await engine.freshUrl(t) };
    const made = await installation.run(
      ['token', 'create', 'alice', '--scope', 'plants:read', '--expires', 'never', '--name', 'x'],
      { env },
    );
    assert.ok(isWellFormedSecret(made.stdout.trim()), made.stderr);
    const { time, token, ...created } = JSON.parse(made.stderr.trimEnd().split('\n').at(-1) ?? '');
    assert.deepEqual(created, {
      level: 30,
      audit: 'tokenCreated',
      owner: 'alice',
      scopes: ['plants:read'],
      expires: 'never',
      msg: 'a token was created',
    });
    assert.ok(Date.parse(time) <= Date.now());
    const revoked = await installation.run(['token', 'revoke', token], { env });
    const { time: then, ...event } = JSON.parse(revoked.stderr);
    assert.deepEqual(event, { level: 30, audit: 'tokenRevoked', token, msg: 'a token was revoked' });
    assert.ok(Date.parse(then) >= Date.parse(time));
    const failed = await installation.run(['token', 'revoke', 'nosuchtoken1'], { env });
    assert.doesNotMatch(failed.stderr, /audit/);
  });
}

test('recording the first use fails once → logged after the retry', async (t) => {
  const url = await postgres.freshUrl(t);
  const service = await startService(t, url);
  const secret = await service.token();
  const { id } = await tokenOf(service, secret);
  const isLogged = () => service.logLines.some((line) => line.includes('was not recorded'));
  const other = new pg.Client({ connectionString: url });
  await other.connect();
  try {
    await other.query('BEGIN');
    await other.query('SELECT 1 FROM tokens FOR UPDATE');
    assert.equal((await list(service, secret)).status, 200);
    await until(async () => {
      await other.query(CANCEL_WHAT_WAITS);
      return isLogged();
    });
  } finally {
    await other.end();
  }
  for (const _ of ['the first that is recorded', 'the next']) {
    service.clock.now += MINUTE_MS;
    await list(service, secret);
    await events(service, 1);
  }
  await service.close();
  const logged = eventsIn(service.logLines).map(({ audit, token }) => ({ audit, token }));
  assert.deepEqual(logged, [{ audit: 'tokenFirstUsed', token: id }]);
});

test('first start → its token is in the log of the service', async (t) => {
  const installation = await newInstallation(t);
  const service = await installation.serve();
  const { owner, token } = await service.logged(({ audit }) => audit === 'tokenCreated');
  assert.equal(owner, 'default');
  const { stdout } = await installation.run(['token', 'list']);
  assert.ok(stdout.includes(String(token)));
});

test('rejections → a line per token, reason and minute, 100 of a reason, and one line with the rest', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const lines: (readonly [fields: object, message: string])[] = [];
  const audit = createAudit({ event: (message, fields) => void lines.push([fields, message]) });
  const origin = { requestId: 'r', address: '192.0.2.1', network: '192.0.2.1' };
  const token = { id: 'abc', owner: 'alice' };

  for (let round = 0; round < 10; round += 1) {
    audit.tokenRejected('expired', token, origin);
    audit.tokenRejected('insufficientScope', token, origin);
    audit.tokenRejected('unknown', {}, origin);
  }
  assert.equal(lines.length, 3);
  t.mock.timers.tick(MINUTE_MS);
  assert.deepEqual(lines.splice(0).at(-1), [
    { audit: 'tokensRefused', more: 27 },
    'some rejected tokens were not logged, to limit the log',
  ]);

  for (let host = 0; host < 5_000; host += 1)
    audit.tokenRejected('unknown', {}, { ...origin, network: `2001:db8:0:${host.toString(16)}` });
  assert.equal(lines.splice(0).length, 100);
  for (let user = 0; user < 200; user += 1)
    audit.tokenRejected('insufficientScope', { owner: `issuer#${user}` }, origin);
  assert.equal(lines.splice(0).length, 100);
  audit.tokenRejected('revoked', token, origin);
  assert.equal(lines.splice(0).length, 1, 'the others do not hide it');
  t.mock.timers.tick(MINUTE_MS);
  assert.deepEqual(
    lines.splice(0).map(([fields]) => fields),
    [{ audit: 'tokensRefused', more: 5_000 }],
  );

  audit.tokenRejected('unknown', {}, origin);
  t.mock.timers.tick(MINUTE_MS);
  audit.close();
  assert.equal(lines.length, 1, 'nothing is said of a rest that is none');
});
