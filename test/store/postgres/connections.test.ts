// cspell:words PGUSER
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { ANSWER_GRACE_MS, watchTimelines } from '../../../src/store/postgres/host/sessions.ts';
import type { Connection } from '../../../src/store/postgres/statements.ts';
import { inTransaction } from '../../../src/store/postgres/transaction.ts';
import { NothingStored, StoreUnavailable, type TimelineRegression } from '../../../src/store/store.ts';
import { execute, freshFolder, postgres } from '../../support/engines.ts';
import { PATIENCE_MS, until } from '../../support/patience.ts';
import { keepAliveDueMs } from '../../support/process-resources.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';

/** One connection through a proxy. Its server process shows whether it was replaced. */
async function open(t: TestContext, statementTimeoutMs = 1_000) {
  const url = new URL(await postgres.freshUrl(t));
  const proxy = await startTcpProxy(t, Number(url.port));
  url.host = `127.0.0.1:${proxy.port}`;
  const options = { poolSize: 1, acquireTimeoutMs: 2_000, statementTimeoutMs, prepare: true };
  const connections = new Connections(url.href, options);
  t.after(() => connections.close());
  return { connections, proxy, url: url.href };
}

async function processOf(connections: Pick<Connection, 'query'>): Promise<number> {
  const [row] = await connections.query({ text: 'SELECT pg_backend_pid() AS pid' });
  return Number(row?.pid);
}

const patient = { poolSize: 1, acquireTimeoutMs: 20_000, statementTimeoutMs: 1_000, prepare: true };

const FAILING = { text: 'SELECT 1 / 0' };

test('the server ends a statement at its timeout → the connection stays', async (t) => {
  const { connections } = await open(t, 300);
  const before = await processOf(connections);
  await assert.rejects(connections.query({ text: 'SELECT pg_sleep(60)' }), { code: '57014' });
  // The client would wait for an answer until then.
  await sleep(2 * ANSWER_GRACE_MS);
  assert.equal(await processOf(connections), before);
});

describe('a connection is lost', () => {
  async function assertLost(connections: Connections, work: (connection: Connection) => Promise<unknown>) {
    await assert.rejects(connections.use(work), (error: unknown) => {
      assert.ok(error instanceof StoreUnavailable, String(error));
      assert.match(error.message, /^no connection to PostgreSQL: /);
      return true;
    });
  }

  test('when it is cut during a statement, and for later statements', async (t) => {
    const { connections, proxy } = await open(t);
    const before = await processOf(connections);
    const cut = proxy.expect(/SELECT 1/, 'cut after');
    await assertLost(connections, async (connection) => {
      await assert.rejects(connection.query({ text: 'SELECT 1' }), (error: unknown) => {
        assert.ok(error instanceof StoreUnavailable && !(error instanceof NothingStored), String(error));
        return true;
      });
      // pg does not send this one.
      await assert.rejects(connection.query({ text: 'SELECT 2' }), NothingStored);
      await connection.query({ text: 'SELECT 3' });
    });
    await cut;
    assert.notEqual(await processOf(connections), before);
  });

  test('when a statement times out', async (t) => {
    const { connections, proxy } = await open(t);
    const before = await processOf(connections);
    const stalled = proxy.expect(/SELECT 1/, 'stall');
    await assertLost(connections, (connection) => connection.query({ text: 'SELECT 1' }));
    await stalled;
    proxy.recover();
    assert.notEqual(await processOf(connections), before);
  });

  test('when a rollback times out, whatever its reason', async (t) => {
    const { connections, proxy } = await open(t);
    const before = await processOf(connections);
    const stalled = proxy.expect(/ROLLBACK/, 'stall');
    await assert.rejects(
      connections.use((connection) => inTransaction(connection, 'BEGIN', () => connection.query(FAILING))),
      {
        name: 'StoreUnavailable',
        message:
          /^PostgreSQL: division by zero \(22012\); then the rollback failed: no connection to PostgreSQL: Query read/,
      },
    );
    await stalled;
    proxy.recover();
    assert.notEqual(await processOf(connections), before);
  });

  test('when the server rejects a rollback', async (t) => {
    const { connections } = await open(t);
    const before = await processOf(connections);
    const unwilling = ({ query }: Connection): Connection => ({
      query: (statement) => query(statement.text === 'ROLLBACK' ? FAILING : statement),
    });
    await assert.rejects(
      connections.use((connection) =>
        inTransaction(unwilling(connection), 'BEGIN', () => connection.query(FAILING)),
      ),
      {
        name: 'StoreUnavailable',
        message:
          /^PostgreSQL: division by zero \(22012\); then the rollback failed: current transaction is aborted/,
      },
    );
    assert.notEqual(await processOf(connections), before);
  });

  test('when the server ends it in a transaction, and the error says so', async (t) => {
    const { connections } = await open(t);
    const before = await processOf(connections);
    const end = { text: 'SELECT pg_terminate_backend(pg_backend_pid())' };
    await assert.rejects(
      connections.use((connection) => inTransaction(connection, 'BEGIN', () => connection.query(end))),
      { code: '57P01' },
    );
    assert.notEqual(await processOf(connections), before);
  });

  test('when the server ends it after an error, as at a panic → the outcome is unknown', async (t) => {
    const { connections } = await open(t);
    const before = await processOf(connections);
    const end = { text: 'SELECT 1 / (NOT pg_terminate_backend(pg_backend_pid()))::integer' };
    await assert.rejects(connections.query(end), (error: unknown) => {
      assert.ok(error instanceof StoreUnavailable && !(error instanceof NothingStored), String(error));
      assert.match(error.message, /^PostgreSQL: division by zero \(22012\); then ./);
      return true;
    });
    assert.notEqual(await processOf(connections), before);
  });

  test('when none is available in time', async (t) => {
    const { connections } = await open(t);
    await connections.use(() => assertLost(connections, processOf));
  });

  test('when the server ends it', async (t) => {
    const { connections } = await open(t);
    const before = await processOf(connections);
    const end = (connection: Connection) =>
      connection.query({ text: 'SELECT pg_terminate_backend(pg_backend_pid())' });
    await assert.rejects(connections.use(end), { code: '57P01' });
    assert.notEqual(await processOf(connections), before);
  });
});

test('the server is silent on one connection → the idle ones are replaced before they are used', async (t) => {
  const { proxy, url } = await open(t);
  const connections = new Connections(url, { ...patient, poolSize: 3, acquireTimeoutMs: 2_000 });
  t.after(() => connections.close());
  await Promise.all([1, 2, 3].map(() => connections.query({ text: 'SELECT pg_sleep(0.1)' })));
  assert.equal(connections.count().idle, 3);
  proxy.stall();
  await assert.rejects(processOf(connections), /Query read timeout/);
  await assert.rejects(processOf(connections), /connection timeout/);
  assert.equal(connections.count().idle, 0);
  proxy.recover();
  assert.ok((await processOf(connections)) > 0);
});

test('the server is silent → the connection is reset, so that the server never gets what is still to be sent', async (t) => {
  const url = new URL(await postgres.freshUrl(t));
  const accepted = new Set<Socket>();
  const proxy = await startTcpProxy(t, Number(url.port), (_, socket) => accepted.add(socket));
  url.host = `127.0.0.1:${proxy.port}`;
  const connections = new Connections(url.href, { ...patient, poolSize: 1, statementTimeoutMs: 100 });
  t.after(() => connections.close());
  await processOf(connections);
  proxy.stall();
  const [socket = assert.fail()] = accepted;
  const ended = once(socket, 'error');
  await assert.rejects(processOf(connections), /Query read timeout/);
  const [error] = await ended;
  assert.equal(error.code, 'ECONNRESET');
});

test('the role is dropped and created again → its connection is replaced once it is a second old', async (t) => {
  const url = await limitedUrl(t, -1);
  const connections = new Connections(url.href, { ...patient, poolSize: 1 });
  t.after(() => connections.close());
  const user = { text: 'SELECT current_user AS name' };
  assert.deepEqual(await connections.query(user), [{ name: url.username }]);
  const { username } = url;
  const administrator = process.env.TEST_DATABASE_URL ?? '';
  await execute(administrator, `DROP ROLE ${username}`);
  await execute(administrator, `CREATE ROLE ${username} LOGIN PASSWORD '${username}'`);
  await assert.rejects(connections.query(user), { code: '42704' });
  await until(async () => (await connections.query(user).catch(() => [])).length > 0);
  assert.deepEqual(await connections.query(user), [{ name: username }]);
});

test('a grant is missing → a connection of less than a second stays', async (t) => {
  const url = await limitedUrl(t, -1);
  const now = performance.now();
  t.mock.method(performance, 'now', () => now);
  const connections = new Connections(url.href, { ...patient, poolSize: 1 });
  t.after(() => connections.close());
  const first = await processOf(connections);
  await assert.rejects(connections.query({ text: 'SELECT * FROM pg_shadow' }), { code: '42501' });
  assert.equal(await processOf(connections), first);
});

test('the server ends a connection between two statements → the error of the next one says why', async (t) => {
  const { connections, url } = await open(t);
  const failed = connections.use(async (connection) => {
    const [row] = await connection.query({ text: 'SELECT pg_backend_pid() AS pid' });
    await execute(url, `SELECT pg_terminate_backend(${Number(row?.pid)}, ${PATIENCE_MS})`);
    for (;;) await connection.query({ text: 'SELECT 1' });
  });
  await assert.rejects(failed, /terminating connection due to administrator command/);
});

describe('a connection is kept', () => {
  test('when the server rejects a statement', async (t) => {
    const { connections } = await open(t);
    const before = await processOf(connections);
    await assert.rejects(
      connections.use((connection) => connection.query(FAILING)),
      { code: '22012' },
    );
    assert.equal(await processOf(connections), before);
  });

  test('when `work` fails with its own error, which is not changed', async (t) => {
    const { connections } = await open(t);
    const before = await processOf(connections);
    const fault = new TypeError('a programming error');
    const work = async (): Promise<never> => {
      throw fault;
    };
    await assert.rejects(connections.use(work), (error: unknown) => error === fault);
    assert.equal(await processOf(connections), before);
  });
});

test('a new connection is ready only after its caller has given up → it is not lost to the pool', async (t) => {
  const { connections, proxy } = await open(t, PATIENCE_MS);
  const [begun, end] = [Promise.withResolvers<void>(), Promise.withResolvers<never>()];
  const work = (): Promise<never> => {
    begun.resolve();
    return end.promise;
  };
  const first = assert.rejects(connections.use(work), /the connection is lost/);
  await begun.promise;
  const caller = connections.use(processOf).then(
    () => 'served',
    ({ message }: Error) => message,
  );
  const held = proxy.expect(/statement_timeout/, 'hold');
  end.reject(new StoreUnavailable('the connection is lost'));
  await first;
  // On a busy machine the caller may give up before the connection exists.
  await Promise.race([held, caller]);
  assert.equal(await caller, 'no connection to PostgreSQL: timeout exceeded when trying to connect');
  proxy.release();
  await until(() => connections.count().busy === 0);
  assert.ok((await processOf(connections)) > 0);
});

/** The URL of a new account, for which the server accepts up to `limit` connections. */
async function limitedUrl(t: TestContext, limit: number): Promise<URL> {
  const url = new URL(await postgres.freshUrl(t));
  const account = `limited_${randomBytes(8).toString('hex')}`;
  await execute(url.href, `CREATE ROLE ${account} LOGIN PASSWORD '${account}' CONNECTION LIMIT ${limit}`);
  t.after(() => execute(process.env.TEST_DATABASE_URL ?? '', `DROP ROLE ${account}`));
  Object.assign(url, { username: account, password: account });
  return url;
}

describe('the server accepts fewer connections than the pool may have', () => {
  test('statements wait for those', async (t) => {
    const url = await limitedUrl(t, 2);
    const connections = new Connections(url.href, { ...patient, poolSize: 10 });
    t.after(() => connections.close());
    for (let round = 0; round < 3; round += 1) {
      const processes = await Promise.all(Array.from({ length: 30 }, () => processOf(connections)));
      assert.ok(new Set(processes).size <= 2);
    }
  });

  test('statements fail once their time is over, also if another connection was tried just before', async (t) => {
    const url = await limitedUrl(t, 1);
    const connections = new Connections(url.href, { ...patient, poolSize: 2, acquireTimeoutMs: 2_000 });
    t.after(() => connections.close());
    const failsInTime = (): Promise<unknown> =>
      Promise.race([
        assert.rejects(processOf(connections), StoreUnavailable),
        // A timer, as the timeout is: a machine that stalls delays both, and keeps their order.
        sleep(2_900, undefined, { ref: false }).then(() => assert.fail('it still waits after 2.9 s')),
      ]);
    await connections.use(async () => {
      const first = failsInTime();
      // The pool tries another connection again after a second, for a new statement and then for the first one.
      await sleep(1_500);
      await Promise.all([first, failsInTime()]);
    });
    assert.ok((await processOf(connections)) > 0);
  });

  test('all are busy for longer than the wait → a statement fails, and later ones succeed', async (t) => {
    const url = await limitedUrl(t, 1);
    const connections = new Connections(url.href, { ...patient, poolSize: 2, acquireTimeoutMs: 1_000 });
    t.after(() => connections.close());
    await connections.use(async () => {
      await assert.rejects(processOf(connections), StoreUnavailable);
      // The timeout of the pool comes later than that of the statement.
      await sleep(500);
    });
    assert.ok((await processOf(connections)) > 0);
  });

  test('a connection that is ending does not count: another one is tried once', async (t) => {
    const url = await limitedUrl(t, 2);
    let tries = 0;
    const proxy = await startTcpProxy(t, Number(url.port), (bytes) => {
      if (bytes.includes(`user\0${url.username}\0`)) tries += 1;
    });
    url.host = `127.0.0.1:${proxy.port}`;
    const connections = new Connections(url.href, { ...patient, poolSize: 3 });
    t.after(() => connections.close());
    let waiting: Promise<number> | undefined;
    await connections.use(async () => {
      let slow: Promise<unknown> | undefined;
      const ending = connections.use(async ({ query }) => {
        slow = query({ text: 'SELECT pg_sleep(0.2)' });
        throw new StoreUnavailable('the connection is lost');
      });
      await assert.rejects(ending, /the connection is lost/);
      tries = 0;
      waiting = processOf(connections);
      await slow;
    });
    await waiting;
    assert.equal(tries, 1);
  });
});

describe('two hosts accept writes', () => {
  /** A pool of one connection. `first` is a proxy to the first host; `sent` counts the bytes to the second. */
  async function openTwo(t: TestContext, options = {}) {
    const url = new URL(await postgres.freshUrl(t));
    let sent = 0;
    const first = await startTcpProxy(t, Number(url.port));
    const second = await startTcpProxy(t, Number(url.port), ({ length }) => {
      sent += length;
    });
    const host = `127.0.0.1:${first.port}`;
    const hosts = url.href.replace(url.host, `${host},127.0.0.1:${second.port}`);
    const connections = new Connections(hosts, { ...patient, acquireTimeoutMs: 2_000, ...options });
    t.after(() => connections.close());
    return { connections, first, host, sent: () => sent };
  }

  test('all connections to the first are in use for the whole wait → an error, and the other host is not tried', async (t) => {
    const { connections, host, sent } = await openTwo(t);
    await connections.use(() =>
      assert.rejects(processOf(connections), {
        name: 'StoreUnavailable',
        message: `no connection to PostgreSQL: ${host}: all connections are busy, and no new one opened in time; look for locks and slow statements in the database, or raise --database-pool-size`,
      }),
    );
    assert.ok((await processOf(connections)) > 0);
    assert.equal(sent(), 0);
  });

  test('the connection to the first is lost → it is opened again', async (t) => {
    const { connections, sent } = await openTwo(t);
    const end = { text: 'SELECT pg_terminate_backend(pg_backend_pid())' };
    await assert.rejects(connections.query(end), { code: '57P01' });
    assert.ok((await processOf(connections)) > 0);
    assert.equal(sent(), 0);
  });

  test('all sessions of the first became read-only, as at a switchover → one error, then the other host', async (t) => {
    const { connections, sent } = await openTwo(t, { poolSize: 2 });
    const demote = { text: 'SET default_transaction_read_only = on' };
    const write = { text: 'CREATE TABLE written ()' };
    await connections.use(async (connection) => {
      await connection.query(demote);
      await connections.query(demote);
    });
    await assert.rejects(connections.query(write), { code: '25006' });
    await connections.query(write);
    assert.ok(sent() > 0);
  });

  test('all connections to the first are in use for more than a share of the wait → statements wait', async (t) => {
    const { connections, sent } = await openTwo(t);
    let waiting: Promise<number> | undefined;
    const first = await connections.use(async (connection) => {
      waiting = processOf(connections);
      await sleep(1_300);
      return processOf(connection);
    });
    assert.equal(await waiting, first);
    assert.equal(sent(), 0);
  });

  test('a login to the first takes too long, another one most of the time → statements wait for that', async (t) => {
    const { connections, first, sent } = await openTwo(t, { poolSize: 2, acquireTimeoutMs: 8_000 });
    const asked: Promise<number>[] = [];
    for (let login = 0; login < 2; login += 1) {
      const held = first.expect(/user\0/, 'hold');
      asked.push(processOf(connections));
      await held;
    }
    // Longer than half of the share of a host.
    await sleep(2_300);
    first.release();
    const [one, other] = await Promise.all(asked);
    assert.equal(one, other);
    assert.equal(sent(), 0);
  });

  test('a login to the first takes too long, and others wait ever since → the pool grows again', async (t) => {
    const { connections, first, sent } = await openTwo(t, { poolSize: 2 });
    await connections.use(async () => {
      const held = first.expect(/user\0/, 'hold');
      const asked = [processOf(connections)];
      await held;
      for (let number = 0; number < 12; number += 1) {
        await sleep(200);
        asked.push(processOf(connections));
      }
      const ended = await Promise.allSettled(asked);
      assert.equal(ended.at(-1)?.status, 'fulfilled');
    });
    assert.equal(sent(), 0);
  });
});

test('the server rejects new logins, but an open connection works → statements wait for it, and fail once it is gone', async (t) => {
  const url = await limitedUrl(t, -1);
  const reasons = new Set<string>();
  const onLoginRejected = (reason: string): void => void reasons.add(reason);
  const connections = new Connections(url.href, { ...patient, poolSize: 5 }, { onLoginRejected });
  t.after(() => connections.close());
  const first = await connections.use(async (connection) => {
    await execute(process.env.TEST_DATABASE_URL ?? '', `ALTER ROLE ${url.username} NOLOGIN`);
    const waiting = Array.from({ length: 30 }, () => processOf(connections));
    await until(() => connections.count().waiting > 0);
    return { process: await processOf(connection), waiting };
  });
  assert.deepEqual(new Set(await Promise.all(first.waiting)), new Set([first.process]));
  const reason = `role "${url.username}" is not permitted to log in`;
  assert.deepEqual(reasons, new Set([reason]));
  await assert.rejects(connections.query({ text: 'SELECT pg_terminate_backend(pg_backend_pid())' }));
  await assert.rejects(processOf(connections), {
    name: 'StoreUnavailable',
    message: `no connection to PostgreSQL: ${reason}`,
  });
});

test('logins take too long, but an open connection works → statements wait for it', async (t) => {
  const { proxy, url } = await open(t);
  const onLoginRejected = (reason: string): never => assert.fail(reason);
  const options = { ...patient, poolSize: 2, acquireTimeoutMs: 4_000 };
  const connections = new Connections(url, options, { onLoginRejected });
  t.after(() => connections.close());
  let waiting: Promise<number> | undefined;
  const first = await connections.use(async (connection) => {
    const held = proxy.expect(/user\0/, 'hold');
    waiting = processOf(connections);
    await Promise.all([held, until(() => connections.count().waiting === 1)]);
    return processOf(connection);
  });
  assert.equal(await waiting, first);
});

test('the database has other defaults → each session has the settings of the service', async (t) => {
  const url = await postgres.freshUrl(t);
  const database = new URL(url).pathname.slice(1);
  for (const setting of [
    'synchronous_commit = off',
    "default_transaction_isolation = 'serializable'",
    'statement_timeout = 0',
    'lock_timeout = 0',
    'idle_in_transaction_session_timeout = 0',
    "idle_session_timeout = '9s'",
    'client_min_messages = error',
    'row_security = on',
  ])
    await execute(url, `ALTER DATABASE ${database} SET ${setting}`);
  const connections = new Connections(url, { ...patient, statementTimeoutMs: 1_234 });
  t.after(() => connections.close());
  const settings = await connections.use(({ query }) =>
    query({
      text: `SELECT name, current_setting(name) AS value
               FROM unnest('{synchronous_commit, transaction_isolation, statement_timeout, lock_timeout,
                             idle_in_transaction_session_timeout, idle_session_timeout, client_min_messages, row_security,
                             tcp_keepalives_idle, tcp_keepalives_interval, tcp_keepalives_count}'::text[]) AS name`,
    }),
  );
  assert.deepEqual(Object.fromEntries(settings.map(({ name, value }) => [name, value])), {
    synchronous_commit: 'on',
    transaction_isolation: 'read committed',
    statement_timeout: '1234ms',
    lock_timeout: '1110ms',
    idle_in_transaction_session_timeout: '1234ms',
    idle_session_timeout: '0',
    client_min_messages: 'warning',
    row_security: 'off',
    tcp_keepalives_idle: '10',
    tcp_keepalives_interval: '5',
    tcp_keepalives_count: '3',
  });
});

test('a connection is silent for 10 s → the kernel asks whether the server is still there', async (t) => {
  const connections = new Connections(await postgres.freshUrl(t), patient);
  t.after(() => connections.close());
  const [row] = await connections.query({
    text: 'SELECT inet_client_port() AS own, inet_server_port() AS other',
  });
  let due = Number.POSITIVE_INFINITY;
  await until(async () => {
    due = (await keepAliveDueMs(Number(row?.own), Number(row?.other))) ?? due;
    return Number.isFinite(due);
  });
  assert.ok(due <= 10_000, `due in ${due} ms`);
});

test('a server has no setting array_nulls, as CockroachDB → sessions open', async (t) => {
  const url = new URL(await postgres.freshUrl(t));
  const rename = (bytes: Buffer): Buffer =>
    Buffer.from(bytes.toString('latin1').replaceAll('array_nulls', 'array_zeros'), 'latin1');
  const proxy = await startTcpProxy(t, Number(url.port), undefined, undefined, rename);
  url.host = `127.0.0.1:${proxy.port}`;
  const connections = new Connections(url.href, patient);
  t.after(() => connections.close());
  assert.ok((await processOf(connections)) > 0);
});

test('the database has a transaction timeout (PostgreSQL 17) → longer transactions are not ended', async (t) => {
  const url = await postgres.freshUrl(t);
  await execute(
    url,
    `DO $$BEGIN
       IF current_setting('transaction_timeout', true) IS NOT NULL THEN
         EXECUTE format('ALTER DATABASE %I SET transaction_timeout = 500', current_database());
       END IF;
     END$$`,
  );
  const connections = new Connections(url, patient);
  t.after(() => connections.close());
  await connections.use((connection) =>
    inTransaction(connection, 'BEGIN', () => connection.query({ text: 'SELECT pg_sleep(0.8)' })),
  );
});

test('statements sent together: each has the whole time, from the end of the one before', async (t) => {
  const connections = new Connections(await postgres.freshUrl(t), { ...patient, statementTimeoutMs: 3_000 });
  t.after(() => connections.close());
  // The second ends more than a grace period after the timeout of the first.
  const slow = { text: 'SELECT pg_sleep(2.2)' };
  await connections.use(({ query }) => Promise.all([query(slow), query(slow)]));
});

test('a statement of a transaction fails, and `work` ignores it → COMMIT is rejected', async (t) => {
  const { connections } = await open(t);
  const before = await processOf(connections);
  await assert.rejects(
    connections.use((connection) =>
      inTransaction(connection, 'BEGIN', () => connection.query(FAILING).catch(() => [])),
    ),
    { name: 'StatementRejected', message: /^PostgreSQL rolled the transaction back/ },
  );
  assert.equal(await processOf(connections), before);
});

describe('the server warns about a statement', () => {
  async function openWarned(t: TestContext) {
    const warnings: string[] = [];
    const connections = new Connections(await postgres.freshUrl(t), patient, {
      onDatabaseWarning: (message) => void warnings.push(message),
    });
    t.after(() => connections.close());
    return { connections, warnings };
  }

  test('but executed it → its result, and the warning is reported', async (t) => {
    const { connections, warnings } = await openWarned(t);
    const before = await processOf(connections);
    await connections.query({ text: `DO $$BEGIN RAISE WARNING 'vacuum this database'; END$$` });
    assert.deepEqual(warnings, ['vacuum this database']);
    assert.equal(await processOf(connections), before);
  });

  test('with the code of an error → the outcome is unknown', async (t) => {
    const { connections, warnings } = await openWarned(t);
    await assert.rejects(connections.query({ text: 'COMMIT' }), {
      name: 'StoreUnavailable',
      message: 'PostgreSQL warned: there is no transaction in progress (25P01)',
    });
    assert.deepEqual(warnings, []);
  });
});

test('no host accepts a connection → the error has the reason of each', async (t) => {
  const url = new URL(await postgres.freshUrl(t));
  const { host, pathname } = url;
  const read = 'options=-c%20default_transaction_read_only%3Don';
  const connections = new Connections(
    `postgres://postgres:p@ss@127.0.0.1:1,${host}${pathname}?${read}`,
    patient,
  );
  t.after(() => connections.close());
  await assert.rejects(processOf(connections), {
    message: `no connection to PostgreSQL: 127.0.0.1:1: connect ECONNREFUSED 127.0.0.1:1 (no server listens there; start it, or correct the database URL); ${host}: the host is read-only: default_transaction_read_only is on`,
  });
});

test('the first host accepts no connection → tried once, not for each statement', async (t) => {
  const url = new URL(await postgres.freshUrl(t));
  let tries = 0;
  const dead = createServer((socket) => {
    tries += 1;
    socket.destroy();
  });
  const port = await listenOnFreePort(dead);
  t.after(() => dead.close());
  const hosts = `127.0.0.1:${port},${url.host}`;
  const connections = new Connections(url.href.replace(url.host, hosts), patient);
  t.after(() => connections.close());
  for (let statements = 0; statements < 20; statements += 1) await connections.query({ text: 'SELECT 1' });
  assert.equal(tries, 1);
});

test('URL without credentials → those of PGUSER and PGPASSWORD', async (t) => {
  const url = new URL(await postgres.freshUrl(t));
  t.after(() => {
    delete process.env.PGUSER;
    delete process.env.PGPASSWORD;
  });
  Object.assign(process.env, { PGUSER: url.username, PGPASSWORD: url.password });
  const connections = new Connections(`postgres://${url.host}${url.pathname}`, patient);
  t.after(() => connections.close());
  assert.ok((await processOf(connections)) > 0);
});

test('URL of another kind → StoreNotOpened', () => {
  assert.throws(() => new Connections('mysql://127.0.0.1/plants', patient), {
    name: 'StoreNotOpened',
    message: 'the database URL must be postgres://USER:PASSWORD@HOST:PORT/DATABASE',
  });
});

test('timelines are hexadecimal: 9, A, 9 → one regression', () => {
  const reported: TimelineRegression[] = [];
  const timelines = watchTimelines((regression) => void reported.push(regression));
  for (const digits of ['00000009', '0000000A', null, '00000009', '00000009']) timelines.note(digits);
  assert.deepEqual(reported, [{ timeline: 9, highest: 10 }]);
  assert.equal(timelines.regressions(), 1);
});

test('the process stood still for longer than the timeouts → the answer counts', async (t) => {
  const { connections } = await open(t, 300);
  const before = await processOf(connections);
  const rows = await connections.use((connection) => {
    const answer = connection.query({ text: 'SELECT 1 AS one' });
    standStill(1_000);
    return answer;
  });
  assert.deepEqual(rows, [{ one: 1 }]);
  assert.equal(await processOf(connections), before);
});

test('the process stood still while a statement waited for a connection → it gets one', async (t) => {
  const options = { ...patient, acquireTimeoutMs: 500 };
  const connections = new Connections(await postgres.freshUrl(t), options);
  t.after(() => connections.close());
  await connections.query({ text: 'SELECT 1' });
  const first = connections.query({ text: 'SELECT pg_sleep(0.1)' });
  const second = connections.query({ text: 'SELECT 2 AS two' });
  await until(() => connections.count().waiting === 1);
  // Timers run before the sockets are read.
  await setImmediate();
  standStill(1_500);
  await first;
  assert.deepEqual(await second, [{ two: 2 }]);
});

for (const [what, bytes] of [
  ['asks for a login by GSSAPI', '520000000800000007'],
  ['sends a message that is too short', '5200000004'],
] as const)
  test(`a server that ${what} → StoreUnavailable`, async (t) => {
    const server = createServer((socket) => {
      socket.on('error', () => undefined).once('data', () => socket.write(Buffer.from(bytes, 'hex')));
    });
    t.after(() => server.close());
    const url = `postgres://postgres@127.0.0.1:${await listenOnFreePort(server)}/plants`;
    const connections = new Connections(url, patient);
    t.after(() => connections.close());
    await assert.rejects(connections.query({ text: 'SELECT 1' }), (error) => {
      return error instanceof StoreUnavailable && /unreadable message of the server/.test(error.message);
    });
  });

test('a certificate file of the URL is away while requests wait → they are rejected, and later ones succeed', async (t) => {
  const url = await postgres.freshUrl(t);
  const file = join(await freshFolder(), 'ca.crt');
  await writeFile(file, 'a certificate');
  const connections = new Connections(`${url}?sslmode=disable&sslrootcert=${file}`, {
    ...patient,
    poolSize: 1,
  });
  t.after(() => connections.close());
  const waiting: Promise<unknown>[] = [];
  await assert.rejects(
    connections.use(async (connection) => {
      const pid = await processOf(connection);
      waiting.push(...Array.from({ length: 20 }, () => connections.query({ text: 'SELECT 1' })));
      await rm(file);
      await execute(url, `SELECT pg_terminate_backend(${pid})`);
      await connection.query({ text: 'SELECT 1' });
    }),
  );
  for (const rejected of waiting)
    await assert.rejects(rejected, (error: unknown) => {
      assert.ok(error instanceof NothingStored, String(error));
      assert.match(error.message, /ENOENT.*ca\.crt/);
      return true;
    });
  await writeFile(file, 'a certificate');
  await connections.query({ text: 'SELECT 1' });
  assert.deepEqual(connections.count(), { idle: 1, busy: 0, waiting: 0 });
});

test('a statement after the close → rejects at once, and leaves no timer', async (t) => {
  const connections = new Connections(await postgres.freshUrl(t), patient);
  await connections.query({ text: 'SELECT 1' });
  await connections.close();
  const timers = () => process.getActiveResourcesInfo().filter((type) => type === 'Timeout').length;
  const before = timers();
  await assert.rejects(connections.query({ text: 'SELECT 1' }), /after calling end on the pool/);
  assert.equal(timers(), before);
});

test('the network is silent at the close → the sockets are closed all the same', async (t) => {
  const { proxy, url } = await open(t);
  const connections = new Connections(url, patient);
  await connections.query({ text: 'SELECT 1' });
  const sockets = () => process.getActiveResourcesInfo().filter((type) => type === 'TCPSocketWrap').length;
  const before = sockets();
  proxy.stall();
  await connections.close();
  await until(() => sockets() < before);
});

for (const [what, atClose] of [
  ['a statement runs', /pg_sleep/],
  ['a new session is set up', /set_config/],
  ['the server does not answer a login', /user\0/],
] as const)
  test(`${what} at the close → it is cut off`, async (t) => {
    const { proxy, url } = await open(t);
    const options = { ...patient, acquireTimeoutMs: 2 * PATIENCE_MS, statementTimeoutMs: 2 * PATIENCE_MS };
    const connections = new Connections(url, options);
    const stalled = proxy.expect(atClose, 'stall');
    const waiting = assert.rejects(connections.query({ text: 'SELECT pg_sleep(0)' }), {
      name: /^(?:StoreUnavailable|NothingStored)$/,
      message: /^no connection to PostgreSQL: closed, since the service or command ends/,
    });
    await stalled;
    const begun = performance.now();
    await connections.close();
    await waiting;
    assert.ok(performance.now() - begun < PATIENCE_MS / 2);
  });

/** Blocks the process, as a suspension does. */
function standStill(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
