import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { TOKEN_FRESH_MS } from '../../../src/http/auth/authentication.ts';
import { RECHECK_MS } from '../../../src/http/plants/list-plants.ts';
import type { Store } from '../../../src/store/store.ts';
import { type FoundToken, mintSecret, newToken, type Scope, scopes, type Token } from '../../../src/token.ts';
import { openWire } from '../../support/clients/raw-connection.ts';
import { secretPart } from '../../support/data/secret-part.ts';
import { engines, postgres, type TestEngine } from '../../support/engines.ts';
import { PATIENCE_MS, until } from '../../support/patience.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';
import { bearer, startService, type TestService } from '../../support/service.ts';
import { create as createPlant } from '../../support/store-setup.ts';

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

/** A revocation must take effect within a second, on every instance. */
const REVOKED_WITHIN_MS = 1_000;

/** Longer than that, and shorter than the statement timeout. */
const LATE_MS = 1_500;

test('revoked token, slow PostgreSQL → 401 within a second', async (t) => {
  const direct = await postgres.freshUrl(t);
  const url = new URL(direct);
  const proxy = await startTcpProxy(t, Number(url.port));
  url.host = `127.0.0.1:${proxy.port}`;
  const [far, near] = [await startService(t, url.href), await startService(t, direct)];
  const [one, two] = [await create(near), await create(near)];
  const others = await Promise.all([1, 2, 3].map(() => create(near)));
  // Opens the database connections first.
  await Promise.all(others.map((other) => statusWith(far, other.secret)));
  const early = [];
  for (const { secret, token } of [one, two]) {
    const foundByServer = proxy.delay(LATE_MS, token.id);
    early.push(statusWith(far, secret));
    await foundByServer;
  }
  for (const { token } of [one, two])
    await near.store.write({ kind: 'revokeToken', id: token.id, at: near.clock.now });
  far.clock.now += REVOKED_WITHIN_MS;
  // One request during the first lookup of one token, and one immediately after that of each.
  const during = statusWith(far, one.secret);
  assert.deepEqual(await Promise.all(early), [200, 200]);
  void proxy.delay(0, '');
  const late = [one, two].map(({ secret }) => statusWith(far, secret));
  assert.deepEqual(await Promise.all([during, ...late]), [401, 401, 401]);
});

for (const engine of engines) {
  test(`token created after it was rejected as unknown → valid at once, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const secret = mintSecret();
    for (let round = 0; round < 3; round += 1) assert.equal(await statusWith(service, secret), 401);
    await create(service, { secret });
    assert.equal(await statusWith(service, secret), 200);
    await service.close();
  });

  test(`wrong checksum → 401 without a lookup in the store, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const good = mintSecret();
    const mistyped = good.slice(0, -1) + (good.endsWith('0') ? '1' : '0');
    await create(service, { secret: good });
    await create(service, { secret: mistyped });
    assert.equal(await statusWith(service, good), 200);
    assert.equal(await statusWith(service, mistyped), 401);
    await service.close();
  });

  test(`token expires exactly at expiresAt, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const expiresAt = service.clock.now + 90 * DAY;
    const { secret } = await create(service, { expiresAt });
    const forever = await create(service, { expiresAt: null });
    assert.equal(await statusWith(service, secret), 200);
    service.clock.now = expiresAt - 1;
    assert.equal(await statusWith(service, secret), 200);
    service.clock.now = expiresAt;
    assert.equal(await statusWith(service, secret), 401);
    assert.equal(await statusWith(service, forever.secret), 200);
    service.clock.now = expiresAt + 1_000 * DAY;
    assert.equal(await statusWith(service, secret), 401);
    assert.equal(await statusWith(service, forever.secret), 200);
    await service.close();
  });

  test(`expired token → same response as an unknown one, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const { secret } = await create(service, { expiresAt: service.clock.now });
    const [expired, unknown] = [await ask(service, secret), await ask(service, mintSecret())];
    assert.equal(expired.status, 401);
    assert.equal(expired.headers.get('www-authenticate'), unknown.headers.get('www-authenticate'));
    assert.equal(await expired.text(), await unknown.text());
    await service.close();
  });

  test(`revoked token → 401 within a second on every instance, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    const instances = [await startService(t, url), await startService(t, url)] as const;
    const [one] = instances;
    const { secret, token } = await create(one);
    const other = await create(one);
    for (const instance of instances) assert.equal(await statusWith(instance, secret), 200);
    await one.store.write({ kind: 'revokeToken', id: token.id, at: one.clock.now });
    const revoked = performance.now();
    await Promise.all(
      instances.map(async (instance) => {
        const elapsed = await lastAccepted(instance, secret, revoked);
        assert.ok(elapsed < REVOKED_WITHIN_MS, `it still worked for ${elapsed} ms`);
      }),
    );
    for (const instance of instances) {
      assert.equal(await statusWith(instance, secret), 401);
      assert.equal(await statusWith(instance, other.secret), 200);
    }
    await Promise.all(instances.map((instance) => instance.close()));
  });

  for (const [change, ms, passedMs] of [
    ['passed while the machine slept', TOKEN_FRESH_MS, 0],
    ['was set back', -DAY, 0],
    ['was set back by as much as had passed', 0, TOKEN_FRESH_MS],
  ] as const) {
    test(`token revoked, time ${change} → 401 for the next request, on ${engine.name}`, async (t) => {
      const service = await start(t, engine);
      const { secret, token } = await create(service);
      assert.equal(await statusWith(service, secret), 200);
      await service.store.write({ kind: 'revokeToken', id: token.id, at: service.clock.now });
      service.clock.now += ms;
      service.clock.monotonic += passedMs;
      assert.equal(await statusWith(service, secret), 401);
      await service.close();
    });
  }

  for (const end of ['revoked', 'expired'] as const) {
    test(`token ${end} while the body arrives → 401 and no effect, on ${engine.name}`, async (t) => {
      const service = await start(t, engine);
      const expiresAt = end === 'expired' ? service.clock.now + DAY : null;
      const { secret, token } = await create(service, { expiresAt });
      const other = await create(service);
      const head = `Host: a\r\nAuthorization: Bearer ${secret}\r\nExpect: 100-continue\r\n`;
      const json = `Content-Type: application/json\r\n${head}`;
      const creation = openWire(service.url);
      creation.send(`POST /plants HTTP/1.1\r\n${json}Content-Length: 21\r\n\r\n`);
      const deletion = openWire(service.url);
      deletion.send(`DELETE /plants/2 HTTP/1.1\r\n${head}Transfer-Encoding: chunked\r\n\r\n`);
      // 100 Continue: the headers were accepted.
      await until(() => creation.surplus() > 0 && deletion.surplus() > 0);
      const plant = createPlant(2n, { owner: token.owner, name: 'kept' });
      assert.equal(await service.store.write(plant), 'created');
      if (expiresAt === null) {
        await service.store.write({ kind: 'revokeToken', id: token.id, at: service.clock.now });
        service.clock.now += TOKEN_FRESH_MS;
      } else service.clock.now = expiresAt;
      creation.send('{"id":1,"name":"new"}');
      deletion.send('0\r\n\r\n');
      for (const wire of [creation, deletion]) {
        assert.equal((await wire.answer())?.status, 401);
        wire.destroy();
      }
      assert.match(service.logLines.join(''), new RegExp(`"reason":"${end}","token":"${token.id}"`));
      assert.deepEqual(await (await ask(service, other.secret)).json(), [{ name: 'kept' }]);
      await service.close();
    });
  }

  for (const target of ['/plants', '/plants?limit=1000']) {
    test(`token revoked while a client reads no further of ${target} → the connection is reset, on ${engine.name}`, async (t) => {
      const service = await start(t, engine);
      const { secret, token } = await create(service);
      const name = 'x'.repeat(100_000);
      const plants = Array.from({ length: 100 }, (_, id) =>
        createPlant(BigInt(id), { owner: token.owner, name }),
      );
      await Promise.all(plants.map((plant) => service.store.write(plant)));
      const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
      socket.write(`GET ${target} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${secret}\r\n\r\n`);
      await once(socket, 'readable');
      await service.store.write({ kind: 'revokeToken', id: token.id, at: service.clock.now });
      service.clock.now += TOKEN_FRESH_MS;
      await until(() => service.logLines.some((line) => line.includes('"status":401')));
      await assert.rejects(once(socket.resume(), 'close'), { code: 'ECONNRESET' });
      await service.close();
    });
  }

  test(`token revoked while a list with a limit reads its pages → 401, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const { secret, token } = await create(service);
    const pages = holdSecondPage(t, service.store);
    const name = 'x'.repeat(1_000);
    const plants = Array.from({ length: 200 }, (_, id) => createPlant(BigInt(id), { name }));
    await Promise.all(plants.map((plant) => service.store.write(plant)));
    const headers = bearer(secret);
    const listed = fetch(`${service.url}/plants?limit=200`, { headers });
    await pages.second;
    await service.store.write({ kind: 'revokeToken', id: token.id, at: service.clock.now });
    service.clock.now += TOKEN_FRESH_MS;
    pages.release();
    assert.equal((await listed).status, 401);
    await service.close();
  });

  test(`token expired while its lookup for a list with a limit runs → 401, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const expiresAt = service.clock.now + DAY;
    const { secret } = await create(service, { expiresAt });
    const name = 'x'.repeat(1_000);
    const plants = Array.from({ length: 200 }, (_, id) => createPlant(BigInt(id), { name }));
    await Promise.all(plants.map((plant) => service.store.write(plant)));
    const find = service.store.findToken.bind(service.store);
    t.mock.method(service.store, 'findToken', async (...args: Parameters<typeof find>) => {
      const found = await find(...args);
      if (service.clock.now === expiresAt - 1) service.clock.now = expiresAt;
      return found;
    });
    const read = service.store.listPlants.bind(service.store);
    const { mock } = t.mock.method(service.store, 'listPlants', async (...args: Parameters<typeof read>) => {
      service.clock.now = expiresAt - 1;
      return read(...args);
    });
    const listed = await fetch(`${service.url}/plants?limit=200`, { headers: bearer(secret) });
    assert.equal(listed.status, 401);
    assert.equal(mock.callCount(), 1, 'no page is read after the token has expired');
    await service.close();
  });

  test(`client gone while its list with a limit was read → its token is checked no more, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const { secret } = await create(service);
    const pages = holdSecondPage(t, service.store);
    const name = 'x'.repeat(1_000);
    const plants = Array.from({ length: 100 }, (_, id) => createPlant(BigInt(id), { name }));
    await Promise.all(plants.map((plant) => service.store.write(plant)));
    const { mock } = t.mock.method(globalThis, 'setInterval');
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
    socket.write(`GET /plants?limit=100 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${secret}\r\n\r\n`);
    await pages.second;
    socket.resetAndDestroy();
    await until(() => service.logLines.some((line) => line.includes('"client went away"')));
    pages.release();
    await service.close('gracefully');
    assert.ok(mock.calls.every((call) => call.arguments[1] !== RECHECK_MS));
  });

  test(`token revoked twice → revokedAt is the first time, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const { token, secret } = await create(service);
    const at = service.clock.now;
    const revoke = (at: number) => service.store.write({ kind: 'revokeToken', id: token.id, at });
    assert.equal(await revoke(at), 'done');
    assert.equal(await revoke(at + DAY), 'done');
    assert.equal((await recordOf(service.store, token)).revokedAt, at);
    assert.equal(await statusWith(service, secret), 401);
    await service.close();
  });

  test(`last use of a token → recorded once a minute, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const { secret, token } = await create(service);
    const begun = service.clock.now;
    assert.equal((await recordOf(service.store, token)).lastUsedAt, null);

    assert.equal(await statusWith(service, secret), 200);
    await lastUseIs(service.store, token, begun);

    service.clock.now = begun + MINUTE - 1;
    await allWritten(service.store);
    const before = await writesOf(service);
    for (let times = 0; times < 5; times += 1) assert.equal(await statusWith(service, secret), 200);
    await allWritten(service.store);
    assert.equal((await recordOf(service.store, token)).lastUsedAt, begun);
    assert.equal(await writesOf(service), before, 'no writes to the store');

    service.clock.now = begun + MINUTE;
    assert.equal(await statusWith(service, secret), 200);
    await lastUseIs(service.store, token, begun + MINUTE);

    service.clock.now = begun + 2 * MINUTE - 1;
    assert.equal(await statusWith(service, secret), 200);
    await allWritten(service.store);
    assert.equal((await recordOf(service.store, token)).lastUsedAt, begun + MINUTE);
    await service.close();
  });

  test(`clock set back → uses are recorded again, once a minute, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const { secret, token } = await create(service);
    const right = service.clock.now;
    service.clock.now = right + 30 * DAY;
    assert.equal(await statusWith(service, secret), 200);
    await lastUseIs(service.store, token, right + 30 * DAY);

    service.clock.now = right;
    assert.equal(await statusWith(service, secret), 200);
    await lastUseIs(service.store, token, right);

    service.clock.now = right + MINUTE - 1;
    assert.equal(await statusWith(service, secret), 200);
    await allWritten(service.store);
    assert.equal((await recordOf(service.store, token)).lastUsedAt, right);
    await service.close();
  });

  test(`clocks of instances differ by two minutes → each records a use once a minute, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const { secret, token } = await create(service);
    const begun = service.clock.now;
    assert.equal(await statusWith(service, secret), 200);
    await lastUseIs(service.store, token, begun);
    const ahead = begun + 2 * MINUTE;
    await service.store.write({ kind: 'recordTokenUse', id: token.id, at: ahead });
    assert.equal((await recordOf(service.store, token)).lastUsedAt, ahead);

    service.clock.now = begun + MINUTE - 1;
    assert.equal(await statusWith(service, secret), 200);
    await allWritten(service.store);
    assert.equal((await recordOf(service.store, token)).lastUsedAt, ahead);

    service.clock.now = begun + MINUTE;
    assert.equal(await statusWith(service, secret), 200);
    await lastUseIs(service.store, token, begun + MINUTE);
    await service.close();
  });

  test(`concurrent requests with two tokens → the use of both is recorded, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const [one, other] = [await create(service), await create(service)];
    const secrets = Array.from({ length: 40 }, (_, index) => (index % 2 === 0 ? one : other).secret);
    const statuses = await Promise.all(secrets.map((secret) => statusWith(service, secret)));
    assert.deepEqual(new Set(statuses), new Set([200]));
    for (const { token } of [one, other]) await lastUseIs(service.store, token, service.clock.now);
    await service.close();
  });

  test(`rejected token → no last use is recorded, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const made = [
      await create(service, { expiresAt: service.clock.now }),
      await create(service, { scopes: ['plants:write'] }),
      await create(service),
    ];
    await service.store.write({
      kind: 'revokeToken',
      id: made[2]?.token.id ?? '',
      at: service.clock.now,
    });
    const statuses = [];
    for (const { secret } of made) statuses.push(await statusWith(service, secret));
    assert.deepEqual(statuses, [401, 403, 401]);
    await allWritten(service.store);
    for (const { token } of made) assert.equal((await recordOf(service.store, token)).lastUsedAt, null);
    await service.close();
  });

  test(`tokens of one owner → the same plants, each within its scopes, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const writer = await create(service, { scopes: ['plants:write'] });
    const reader = await create(service, { scopes: ['plants:read'] });
    const stranger = await create(service, { owner: 'bob' });
    const created = await fetch(`${service.url}/plants`, {
      method: 'POST',
      headers: { ...bearer(writer.secret), 'content-type': 'application/json' },
      body: '{"id":7,"name":"Fern"}',
    });
    assert.equal(created.status, 200);
    assert.equal(await (await ask(service, reader.secret)).text(), '[{"name":"Fern"}]');
    assert.equal(await (await ask(service, stranger.secret)).text(), '[]');
    assert.equal(await statusWith(service, writer.secret), 403);
    await service.close();
  });

  test(`stored and logged data of a token → does not authenticate, on ${engine.name}`, async (t) => {
    const service = await start(t, engine);
    const { secret, token } = await create(service);
    assert.equal(await statusWith(service, secret), 200);
    assert.equal((await fetch(`${service.url}/plants?access_token=${secret}`)).status, 401);
    const kept = await recordOf(service.store, token);
    for (const text of [kept.id, Buffer.from(token.digest).toString('hex'), kept.name, kept.owner]) {
      assert.equal(await statusWith(service, text), 401);
    }
    await service.close();
    assert.ok(!service.logLines.join('').includes(secretPart(secret)), 'the log holds a token');
  });
}

interface Made {
  readonly secret: string;
  readonly token: Token;
}

async function start(t: TestContext, engine: TestEngine): Promise<TestService> {
  return startService(t, await engine.freshUrl(t));
}

async function create(
  { store, clock }: TestService,
  options: { secret?: string; owner?: string; scopes?: readonly Scope[]; expiresAt?: number | null } = {},
): Promise<Made> {
  const { secret = mintSecret(), owner = 'alice', ...fields } = options;
  const token = newToken(secret, owner, { scopes, expiresAt: null, name: 'a note', ...fields }, clock.now);
  assert.equal(await store.write({ kind: 'createToken', token }), 'done');
  return { secret, token };
}

function ask({ url }: TestService, secret: string): Promise<Response> {
  return fetch(`${url}/plants`, { headers: bearer(secret) });
}

async function statusWith(service: TestService, secret: string): Promise<number> {
  const response = await ask(service, secret);
  await response.text();
  return response.status;
}

/** Holds the second page that lists read from a store. `second` resolves when it is requested. */
function holdSecondPage(t: TestContext, store: Store): { second: Promise<void>; release: () => void } {
  const { promise: second, resolve: request } = Promise.withResolvers<void>();
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const read = store.listPlants.bind(store);
  const { mock } = t.mock.method(store, 'listPlants', async (...args: Parameters<Store['listPlants']>) => {
    if (mock.callCount() === 1) {
      request();
      await released;
    }
    return read(...args);
  });
  return { second, release };
}

/** Sends requests until the token is rejected. Resolves to the start of the last accepted one, in ms after `since`. */
async function lastAccepted(service: TestService, secret: string, since: number): Promise<number> {
  for (let accepted = 0; ; await setTimeout(10)) {
    const elapsed = performance.now() - since;
    service.clock.now = Date.now();
    if ((await statusWith(service, secret)) === 401) return accepted;
    accepted = elapsed;
    assert.ok(elapsed < PATIENCE_MS, 'it still works');
  }
}

async function recordOf(store: Store, { id }: Token): Promise<FoundToken> {
  const found = await store.findTokenById(id);
  assert.ok(found !== undefined);
  return found;
}

/** Waits until the use is recorded, which happens after the response. */
async function lastUseIs(store: Store, token: Token, expected: number): Promise<void> {
  await until(async () => (await recordOf(store, token)).lastUsedAt === expected);
}

/** Returns the number of writes that the store has executed for the service. */
async function writesOf({ adminUrl }: TestService): Promise<number> {
  const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
  return Number(/^plant_store_commit_batch_writes_sum (\d+)$/m.exec(metrics)?.[1]);
}

/** Waits until all earlier writes are done and counted. Both may happen after the writes are visible to reads. */
async function allWritten({ load }: Store): Promise<void> {
  await until(() => load().writesWaiting + load().writesInFlight === 0);
}
