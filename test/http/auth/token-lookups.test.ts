import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import pg from 'pg';
import { TOKEN_FRESH_MS } from '../../../src/http/auth/authentication.ts';
import { StoreUnavailable } from '../../../src/store/store.ts';
import { mintSecret } from '../../../src/token.ts';
import { postgres, sqlite } from '../../support/engines.ts';
import { bearer, startService, type TestService } from '../../support/service.ts';

/** Three quarters of it are the limit of an address. */
const LIMIT = 4;

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Lists with a token, through a proxy, for a client with this address. */
async function list({ url }: TestService, address: string, token = mintSecret()): Promise<Answer> {
  const headers = { ...bearer(token), 'x-forwarded-for': address };
  const response = await fetch(`${url}/plants?limit=1`, { headers });
  return { status: response.status, text: await response.text() };
}

/** A service whose lookups of tokens wait until `release`, and a token whose last lookup has expired. */
async function holdLookups(t: TestContext, flags = {}) {
  const url = await postgres.freshUrl(t);
  const service = await startService(t, url, {
    maxInFlight: String(LIMIT),
    trustProxy: '127.0.0.1',
    ...flags,
  });
  const known = await service.token();
  assert.equal((await list(service, '192.0.2.9', known)).status, 200);
  const other = new pg.Client({ connectionString: url });
  other.on('error', () => undefined);
  await other.connect();
  service.clock.now += TOKEN_FRESH_MS;
  await other.query('BEGIN; LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE');
  return { service, known, release: () => other.end() };
}

/** Sends one lookup more than fit. Resolves to the response of that one, while the others wait. */
async function fill(service: TestService, addresses: readonly string[]) {
  const all = addresses.map((address) => list(service, address));
  return { rejected: await Promise.race(all), all };
}

/** Statuses of several lookups, sorted. */
async function statuses(all: readonly Promise<Answer>[]): Promise<readonly number[]> {
  return (await Promise.all(all)).map(({ status }) => status).toSorted();
}

test('lookups of unknown tokens at their limit → 50301; a token that was valid before is looked up', async (t) => {
  const { service, known, release } = await holdLookups(t);
  const { rejected, all } = await fill(service, [
    '192.0.2.1',
    '192.0.2.2',
    '192.0.2.3',
    '192.0.2.4',
    '192.0.2.5',
  ]);
  assert.match(rejected.text, /^\{"error":50301,"message":"too many requests are in flight/);
  const listed = list(service, '192.0.2.9', known);
  assert.equal((await list(service, '192.0.2.6')).status, 503);
  await release();
  assert.equal((await listed).status, 200);
  assert.deepEqual(await statuses(all), [401, 401, 401, 401, 503]);
});

test('as many lists in flight as the limit → 50301 before the token is looked up', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), { maxInFlight: '1' });
  const known = await service.token();
  const [begun, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const read = service.store.listPlants.bind(service.store);
  t.mock.method(service.store, 'listPlants', async (...args: Parameters<typeof read>) => {
    begun.resolve();
    await released.promise;
    return read(...args);
  });
  const listed = list(service, '192.0.2.1', known);
  await begun.promise;
  const { mock } = t.mock.method(service.store, 'findToken');
  assert.match(
    (await list(service, '192.0.2.2')).text,
    /^\{"error":50301,"message":"too many requests are in/,
  );
  assert.equal(mock.callCount(), 0);
  released.resolve();
  assert.equal((await listed).status, 200);
});

test('lookup of a token failed → the next request looks it up again', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  const token = await service.token();
  const { mock } = t.mock.method(service.store, 'findToken', async () => {
    throw new StoreUnavailable('the disk failed');
  });
  assert.equal((await list(service, '192.0.2.1', token)).status, 503);
  mock.restore();
  assert.equal((await list(service, '192.0.2.1', token)).status, 200);
});

test('lookup of a token fails after a later one has succeeded → the later one stays cached', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  const token = await service.token();
  const find = service.store.findToken.bind(service.store);
  const [begun, failed] = [Promise.withResolvers<void>(), Promise.withResolvers<never>()];
  const { mock } = t.mock.method(service.store, 'findToken', find);
  mock.mockImplementationOnce(() => {
    begun.resolve();
    return failed.promise;
  });
  const first = list(service, '192.0.2.1', token);
  await begun.promise;
  service.clock.now += TOKEN_FRESH_MS;
  assert.equal((await list(service, '192.0.2.1', token)).status, 200);
  failed.reject(new StoreUnavailable('the disk failed'));
  assert.equal((await first).status, 503);
  assert.equal((await list(service, '192.0.2.1', token)).status, 200);
  assert.equal(mock.callCount(), 2);
});

test('token expires during its lookup → 401', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  const token = await service.token('alice', { expiresAt: service.clock.now + 1 });
  const find = service.store.findToken.bind(service.store);
  t.mock.method(service.store, 'findToken', async (...args: Parameters<typeof find>) => {
    const found = await find(...args);
    service.clock.now += 1;
    return found;
  });
  const { status, text } = await list(service, '192.0.2.1', token);
  assert.equal(status, 401);
  assert.match(text, /^\{"error":40101,/);
});

test('lookups of an address above three quarters of the limit → 50301; another address gets the rest', async (t) => {
  const { service, release } = await holdLookups(t);
  const one = await fill(service, ['192.0.2.1', '192.0.2.1', '192.0.2.1', '192.0.2.1']);
  assert.match(one.rejected.text, /^\{"error":50301,"message":"too many requests of this owner or address/);
  const another = await fill(service, ['192.0.2.2', '192.0.2.2']);
  assert.match(another.rejected.text, /^\{"error":50301,"message":"too many requests are in flight/);
  await release();
  assert.deepEqual(await statuses(one.all), [401, 401, 401, 503]);
  assert.deepEqual(await statuses(another.all), [401, 503]);
});

test('lookups that were rejected with 50301 → count as invalid tokens of their address', async (t) => {
  const { service, release } = await holdLookups(t, { refusedTokenLimit: '2' });
  const { all } = await fill(service, ['192.0.2.1', '192.0.2.1', '192.0.2.1', '192.0.2.1']);
  assert.equal((await list(service, '192.0.2.1')).status, 503);
  assert.equal((await list(service, '192.0.2.1')).status, 429);
  await release();
  assert.deepEqual(await statuses(all), [401, 401, 401, 503]);
});
