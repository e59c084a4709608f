import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { inspect } from 'node:util';
import pg from 'pg';
import { migrateStore } from '../../../src/store/open-engine.ts';
import { StoreNotOpened } from '../../../src/store/store.ts';
import { freshFolder } from '../../support/engines.ts';
import { PATIENCE_MS, PATIENT_CONNECTIONS, until } from '../../support/patience.ts';
import { type PostgresServer, startPostgres } from '../../support/servers/postgres-server.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';
import { bearer, startService, type TestService } from '../../support/service.ts';
import { create, remove } from '../../support/store-setup.ts';
import { Ledger } from '../../support/write-ledger.ts';

/** Short, but longer than a busy machine takes to set up a connection. */
const TIMEOUT_MS = 5_000;
const TIMEOUTS = {
  databaseAcquireTimeout: String(TIMEOUT_MS),
  databaseStatementTimeout: String(TIMEOUT_MS),
};

let server: PostgresServer;

before(async () => {
  // Without fsync, writes survive a crash of the server (not of the machine), and restarts are faster.
  server = await startPostgres(['fsync = off']);
});

after(() => server.remove());

/** A new database on the server of this file; its URL through another port when that is given. */
async function freshDatabase(port = server.port): Promise<string> {
  const name = `faults_${randomBytes(6).toString('hex')}`;
  await server.sql(`CREATE DATABASE ${name}`);
  return `postgres://postgres@127.0.0.1:${port}/${name}`;
}

interface Caller {
  list(): Promise<Response>;
  create(id: number, key?: string): Promise<Response>;
  remove(id: number): Promise<Response>;
}

async function callerOf(service: TestService): Promise<Caller> {
  const authorization = bearer(await service.token());
  const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(`${service.url}${path}`, {
      ...init,
      headers: { ...authorization, ...init.headers },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  return {
    list: () => ask('/plants'),
    create: (id, key) =>
      ask('/plants', {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...(key !== undefined && { 'idempotency-key': key }) },
        body: JSON.stringify({ id, name: `plant ${id}` }),
      }),
    remove: (id) => ask(`/plants/${id}`, { method: 'DELETE' }),
  };
}

async function assertUnavailable(response: Response, outcome = ''): Promise<void> {
  const body = await response.text();
  assert.equal(response.status, 503, body);
  assert.match(body, /^\{"error":50300,"message":"[^"]+"\}$/);
  assert.ok(body.includes(outcome), body);
  assert.ok(Number(response.headers.get('retry-after')) >= 1, 'Retry-After');
  assert.equal(response.headers.get('cache-control'), 'no-store');
  assert.match(response.headers.get('x-request-id') ?? '', /^[\w-]{8,}$/);
}

/** Repeats a request while the response is 503. Rejects after a timeout. */
async function whenAvailable(ask: () => Promise<Response>): Promise<Response> {
  const since = performance.now();
  for (;;) {
    const response = await ask();
    if (response.status !== 503) return response;
    assert.ok(performance.now() - since < PATIENCE_MS, 'the service did not recover in time');
    await assertUnavailable(response);
    await setTimeout(20);
  }
}

async function assertRecovers(caller: Caller, id: number): Promise<void> {
  assert.equal((await whenAvailable(() => caller.create(id))).status, 200);
  assert.equal((await whenAvailable(() => caller.list())).status, 200);
  assert.equal((await whenAvailable(() => caller.remove(id))).status, 204);
}

async function dropConnections(database: string): Promise<void> {
  await server.sql(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${database}' AND pid <> pg_backend_pid()`,
  );
}

const databaseOf = (url: string): string => new URL(url).pathname.slice(1);

test('server stopped → 503 for every operation; server started → the service recovers', async (t) => {
  const service = await startService(t, await freshDatabase(), TIMEOUTS);
  const caller = await callerOf(service);
  assert.equal((await caller.create(1)).status, 200);
  await server.stop();
  try {
    for (const ask of [() => caller.list(), () => caller.create(2), () => caller.remove(1)]) {
      await assertUnavailable(await ask());
    }
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 503);
    assert.equal((await fetch(`${service.adminUrl}/live`)).status, 200);
  } finally {
    await server.start();
  }
  await assertRecovers(caller, 3);
  assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
  assert.deepEqual(await (await caller.list()).json(), [{ name: 'plant 1' }]);
});

test('server without free connections → 503 until one is free', async (t) => {
  const role = `limited_${randomBytes(6).toString('hex')}`;
  const url = new URL(await freshDatabase());
  const database = databaseOf(url.href);
  await server.sql(`CREATE ROLE ${role} LOGIN; ALTER DATABASE ${database} OWNER TO ${role}`);
  url.username = role;
  const caller = await callerOf(await startService(t, url.href, TIMEOUTS));
  assert.equal((await caller.create(1)).status, 200);
  await server.sql(`ALTER ROLE ${role} CONNECTION LIMIT 0`);
  await dropConnections(database);
  await assertUnavailable(await caller.list());
  await assertUnavailable(await caller.create(2), 'nothing was changed');
  await server.sql(`ALTER ROLE ${role} CONNECTION LIMIT -1`);
  await assertRecovers(caller, 3);
});

test('database accepts no connections → 503 until it does', async (t) => {
  const url = await freshDatabase();
  const database = databaseOf(url);
  const caller = await callerOf(await startService(t, url, TIMEOUTS));
  assert.equal((await caller.create(1)).status, 200);
  await server.sql(`ALTER DATABASE ${database} ALLOW_CONNECTIONS false`);
  await dropConnections(database);
  await assertUnavailable(await caller.list());
  await Promise.all([2, 3, 4].map(async (id) => assertUnavailable(await caller.create(id))));
  await server.sql(`ALTER DATABASE ${database} ALLOW_CONNECTIONS true`);
  await assertRecovers(caller, 5);
});

test('server became read-only → 503 for writes only, and no connection keeps that state', async (t) => {
  const url = await freshDatabase();
  const database = databaseOf(url);
  const caller = await callerOf(await startService(t, url, TIMEOUTS));
  assert.equal((await caller.create(1)).status, 200);
  await server.sql(`ALTER DATABASE ${database} SET default_transaction_read_only = on`);
  await dropConnections(database);
  assert.equal((await whenAvailable(() => caller.list())).status, 200);
  await assertUnavailable(await caller.create(2), 'nothing was changed');
  await assertUnavailable(await caller.create(2, 'key'), 'nothing was changed');
  await assertUnavailable(await caller.remove(1), 'nothing was changed');
  const lists = await Promise.all(Array.from({ length: 10 }, () => caller.list()));
  assert.ok(lists.every(({ status }) => status === 200));
  await server.sql(`ALTER DATABASE ${database} RESET default_transaction_read_only`);
  await assertRecovers(caller, 2);
});

/** Number of statements that wait for a lock. */
async function countLockWaits(database: string): Promise<number> {
  const waits = `SELECT 1 FROM pg_stat_activity WHERE datname = '${database}' AND wait_event_type = 'Lock'`;
  return (await server.sql(waits)).length;
}

test('table locked → 503 within the timeouts and nothing stored, also for requests queued for a connection', async (t) => {
  const url = await freshDatabase();
  // Long enough that a busy server begins to wait for the lock in the first tenth of it.
  const databaseStatementTimeout = '4000';
  const service = await startService(t, url, {
    ...TIMEOUTS,
    databaseStatementTimeout,
    databasePoolSize: '3',
  });
  const caller = await callerOf(service);
  assert.equal((await caller.create(1)).status, 200);
  const database = databaseOf(url);
  const other = new pg.Client({ connectionString: url });
  await other.connect();
  try {
    await other.query('BEGIN; LOCK TABLE plants IN ACCESS EXCLUSIVE MODE');
    const writes = [
      ...Array.from({ length: 8 }, (_, index) => caller.create(10 + index)),
      ...Array.from({ length: 8 }, (_, index) => caller.create(20 + index, `key-${index}`)),
      caller.remove(1),
    ];
    await until(async () => (await countLockWaits(database)) > 0);
    const lists = Array.from({ length: 8 }, () => caller.list());
    for (const answer of await Promise.all(lists)) await assertUnavailable(answer);
    for (const answer of await Promise.all(writes)) await assertUnavailable(answer, 'nothing was changed');
    // The server continues no abandoned statements.
    await until(async () => (await countLockWaits(database)) === 0);
  } finally {
    await other.end();
  }
  await assertRecovers(caller, 2);
});

test('silent server → 503 within the timeouts; requests without a store access are answered at once', async (t) => {
  const proxy = await startTcpProxy(t, server.port);
  const service = await startService(t, await freshDatabase(proxy.port), TIMEOUTS);
  const caller = await callerOf(service);
  assert.equal((await caller.create(1)).status, 200);
  proxy.stall();
  let answered = 0;
  const asked = [caller.list(), caller.create(2), caller.create(3, 'key'), caller.remove(1)].map(
    async (answer) => {
      await answer;
      answered += 1;
      return answer;
    },
  );
  const codes = await askWithoutStore(service);
  assert.equal(answered, 0, 'the store answered first');
  assert.deepEqual(codes, [40100, 40101, 40000, 40401, 40401, 40500, 40004]);
  for (const answer of asked) await assertUnavailable(await answer);
  proxy.recover();
  await assertRecovers(caller, 4);
});

/** The error codes of requests that are rejected without a store access. */
async function askWithoutStore({ url }: TestService): Promise<number[]> {
  const list = `${url}/plants`;
  const misspelt = bearer(`plt_${'0'.repeat(49)}`);
  const answers = await Promise.all([
    fetch(list),
    fetch(list, { headers: misspelt }),
    fetch(`${url}/nothing`),
    fetch(`${url}/plants/`, { headers: misspelt }),
    fetch(list, { method: 'PUT' }),
  ]);
  const [none, wrong, nothing, parent, put] = await Promise.all(answers.map(errorIn));
  const twice = await sendRaw(url, 'Host: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n');
  const hostless = await sendRaw(url, '');
  return [none, wrong, twice, nothing, parent, put, hostless].map(Number);
}

async function errorIn(response: Response): Promise<number> {
  const { error }: { error: number } = JSON.parse(await response.text());
  return error;
}

/** The error code for a request with only these header lines. */
async function sendRaw(url: string, headers: string): Promise<number> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.end(`GET /plants HTTP/1.1\r\n${headers}Connection: close\r\n\r\n`);
  let text = '';
  socket.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  await once(socket, 'close');
  return Number(/"error":(\d+)/.exec(text)?.[1]);
}

const COMMIT = /COMMIT|\0commit\0/;

test('connection lost before COMMIT → 503; the retry with the same key creates the plant', async (t) => {
  const proxy = await startTcpProxy(t, server.port);
  const caller = await callerOf(await startService(t, await freshDatabase(proxy.port), TIMEOUTS));
  const cut = proxy.expect(COMMIT, 'cut before');
  await assertUnavailable(await caller.create(1, 'key'), 'outcome is unknown');
  await cut;
  const again = await whenAvailable(() => caller.create(1, 'key'));
  assert.equal(again.status, 200);
  assert.equal(again.headers.get('idempotent-replayed'), null);
  assert.deepEqual(await (await caller.list()).json(), [{ name: 'plant 1' }]);
});

test('connection lost after COMMIT → 503; the retry with the same key is a replay', async (t) => {
  const proxy = await startTcpProxy(t, server.port);
  const caller = await callerOf(await startService(t, await freshDatabase(proxy.port), TIMEOUTS));
  const cut = proxy.expect(COMMIT, 'cut after');
  await assertUnavailable(await caller.create(1, 'key'));
  await cut;
  const again = await whenAvailable(() => caller.create(1, 'key'));
  assert.equal(again.status, 200);
  assert.equal(again.headers.get('idempotent-replayed'), 'true');
  assert.equal((await caller.create(1)).status, 400);
  assert.deepEqual(await (await caller.list()).json(), [{ name: 'plant 1' }]);
});

test('an instance lost before its COMMIT does not block others', async (t) => {
  const proxy = await startTcpProxy(t, server.port);
  const url = await freshDatabase();
  const vanishing = await startService(t, url.replace(String(server.port), String(proxy.port)), TIMEOUTS);
  const other = await callerOf(await startService(t, url, TIMEOUTS));
  const stalled = proxy.expect(COMMIT, 'stall');
  const lost = (await callerOf(vanishing)).create(1, 'key');
  await stalled;
  const created = await whenAvailable(() => other.create(1));
  assert.equal(created.status, 200);
  await assertUnavailable(await lost);
  proxy.recover();
});

/** Waits until the server applies the setting; then this commit does not end. */
async function whenCommitsWait(): Promise<void> {
  for (;;) {
    const client = new pg.Client({ connectionString: server.url(), query_timeout: 200 });
    await client.connect();
    try {
      await client.query(`CREATE TABLE probe_${randomBytes(8).toString('hex')} ()`);
    } catch (error: unknown) {
      assert.match(String(error), /Query read timeout/);
      if ((await server.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")).length > 0)
        return;
    } finally {
      await client.end();
    }
  }
}

/** Runs `work` while no commit ends, since its synchronous standby is missing. */
async function whileStandbyIsMissing(work: () => Promise<void>): Promise<void> {
  await server.sql("ALTER SYSTEM SET synchronous_standby_names = 'missing'");
  try {
    await server.sql('SELECT pg_reload_conf()');
    await whenCommitsWait();
    await work();
  } finally {
    await server.sql('ALTER SYSTEM RESET synchronous_standby_names');
    await server.sql('SELECT pg_reload_conf()');
  }
}

test('a write that the synchronous standby lacks is not acknowledged; reads continue', async (t) => {
  const url = await freshDatabase();
  // The claim of the database is ignored.
  await server.sql(`ALTER DATABASE ${databaseOf(url)} SET synchronous_commit = off`);
  const settings = { ...TIMEOUTS, databaseStatementTimeout: '700', databasePoolSize: '3' };
  const caller = await callerOf(await startService(t, url, settings));
  assert.equal((await caller.create(1)).status, 200);
  await whileStandbyIsMissing(async () => {
    for (const id of [10, 20, 30]) {
      const writes = [caller.create(id), caller.create(id + 1, `key-${id}`)];
      if (id === 10) writes.push(caller.remove(1));
      const list = await caller.list();
      assert.deepEqual([list.status, await list.json()], [200, [{ name: 'plant 1' }]]);
      for (const answer of writes) await assertUnavailable(await answer);
    }
    // Too many commits wait already, so this write is not sent.
    let message = '';
    for (let id = 40; !message.includes('nothing was changed'); id += 1) {
      assert.ok(id < 60, message);
      message = await (await caller.create(id)).text();
    }
    const waits = `SELECT 1 FROM pg_stat_activity WHERE datname = '${databaseOf(url)}' AND wait_event = 'SyncRep'`;
    const { length } = await server.sql(waits);
    assert.ok(length >= 1 && length <= 3 + 1, `${length} commits hold connections of the server`);
  });
  await assertRecovers(caller, 4);
  const again = await whenAvailable(() => caller.create(11, 'key-10'));
  assert.deepEqual([again.status, again.headers.get('idempotent-replayed')], [200, 'true']);
});

/** Translates the severity of warnings, as a server with `lc_messages = de_DE` does. */
function toGerman(bytes: Buffer): Buffer {
  return Buffer.from(bytes.toString('latin1').replaceAll('SWARNING\0', 'SWARNUNG\0'), 'latin1');
}

for (const [how, setting, rewrite] of [
  ['in another language', undefined, toGerman],
  ['that the database hides', 'client_min_messages = error', undefined],
] as const) {
  test(`a wait for the synchronous standby is cancelled, with a warning ${how} → 50300`, async (t) => {
    const direct = await freshDatabase();
    const database = databaseOf(direct);
    if (setting !== undefined) await server.sql(`ALTER DATABASE ${database} SET ${setting}`);
    const proxy = await startTcpProxy(t, server.port, undefined, rewrite);
    const url = direct.replace(String(server.port), String(proxy.port));
    const caller = await callerOf(await startService(t, url, PATIENT_CONNECTIONS));
    assert.equal((await caller.create(1)).status, 200);
    await whileStandbyIsMissing(async () => {
      let isAnswered = false;
      const answers = Promise.all([caller.create(2), caller.create(3, 'key'), caller.remove(1)]).finally(
        () => {
          isAnswered = true;
        },
      );
      const cancel = `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                       WHERE datname = '${database}' AND wait_event = 'SyncRep'`;
      await until(async () => {
        await server.sql(cancel);
        return isAnswered;
      });
      for (const answer of await answers) await assertUnavailable(answer);
    });
  });
}

test('a write queued behind stalled writes is rejected after its own timeout', async (t) => {
  const proxy = await startTcpProxy(t, server.port);
  const timeouts = { ...PATIENT_CONNECTIONS, databaseAcquireTimeout: '1000' };
  const caller = await callerOf(await startService(t, await freshDatabase(proxy.port), timeouts));
  await Promise.all([1, 2, 3].map((id) => caller.create(id)));
  const stuck = proxy.expect(/./s, 'stall');
  let isAnswered = false;
  const first = caller.create(4).finally(() => {
    isAnswered = true;
  });
  await stuck;
  await assertUnavailable(await caller.remove(4));
  assert.equal(isAnswered, false);
  proxy.recover();
  await assertUnavailable(await first);
});

test('the ledger of the writers detects a lost plant and an extra one', async (t) => {
  for (const change of ['deletePlant', 'createPlant'] as const) {
    const service = await startService(t, `sqlite:${await freshFolder()}/plants.db`);
    const ledger = new Ledger({ fronts: [service], token: await service.token(), writers: 2 });
    for (let count = 0; count < 10; count += 1) await ledger.nextAcknowledged();
    await ledger.finish();
    // The first plant is never deleted, the second always is.
    await service.store.write(change === 'deletePlant' ? remove(1n) : create(2n, { name: '2' }));
    await assert.rejects(ledger.settle(), /acknowledged (?:creations|deletions) are lost/);
  }
});

const PASSWORD = 'hunter2-hunter2';

test('a password in the URL never appears in responses or in the log', async (t) => {
  const url = new URL(await freshDatabase());
  url.password = PASSWORD;
  const service = await startService(t, url.href, TIMEOUTS);
  const caller = await callerOf(service);
  assert.equal((await caller.create(1)).status, 200);
  await server.stop('immediate');
  const answers = await Promise.all([caller.list(), caller.create(2, 'key'), caller.remove(1)]);
  const ready = await fetch(`${service.adminUrl}/ready`);
  const texts = await Promise.all([...answers, ready].map((answer) => answer.text()));
  await server.start();
  assert.ok(service.logLines.some((line) => line.includes('StoreUnavailable')));
  assert.ok(service.logLines.some((line) => line.includes('postgres:***@')));
  assert.ok(![...texts, ...service.logLines].some((text) => text.includes(PASSWORD)));
});

test('database cannot be opened → the message omits the password of the URL', async () => {
  for (const url of [
    `postgres://postgres:${PASSWORD}@127.0.0.1:1/plants`,
    `postgres://postgres:${PASSWORD}@127.0.0.1:port/plants`,
    `postgres://postgres:${PASSWORD}@127.0.0.1:1,127.0.0.1:2/plants`,
    `postgres://postgres@127.0.0.1:1/plants?password=${PASSWORD}`,
    `postgres://postgres:${PASSWORD}@127.0.0.1:${server.port}/absent`,
  ]) {
    await assert.rejects(migrateStore(url), (error: unknown) => {
      assert.ok(error instanceof StoreNotOpened, inspect(error));
      assert.ok(!inspect(error, { depth: null, showHidden: true }).includes(PASSWORD));
      return true;
    });
  }
});
