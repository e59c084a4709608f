import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type TestContext, test } from 'node:test';
import pg from 'pg';
import { INT64_MAX, INT64_MIN } from '../../../src/plant.ts';
import { migrateStore, openStore } from '../../../src/store/open-engine.ts';
import type { Outcome, Store, Write } from '../../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../../src/token.ts';
import { execute, postgres } from '../../support/engines.ts';
import { needs } from '../../support/needs.ts';
import { until } from '../../support/patience.ts';
import { newInstallation } from '../../support/program.ts';
import {
  HAS_PGBOUNCER,
  KEEPS_STATEMENTS,
  POOL_SIZE,
  startPgBouncer,
} from '../../support/servers/pgbouncer.ts';
import { startPair } from '../../support/servers/postgres-server.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';
import { bearer, startService } from '../../support/service.ts';
import { create, upTo } from '../../support/store-setup.ts';

const OWNER = 'alice';
const ALL = { from: INT64_MIN, to: INT64_MAX };

/** The URL of a new database, and the server it is on. */
async function freshDatabase(t: TestContext): Promise<URL> {
  return new URL(await postgres.freshUrl(t));
}

function through(url: URL, port: number): string {
  const other = new URL(url);
  other.host = `127.0.0.1:${port}`;
  return other.href;
}

/** Opens a store on more connections than a small pooler has to the server. */
async function open(t: TestContext, url: string, prepare: boolean): Promise<Store> {
  const store = await openStore(url, {
    onFatal: (error) => {
      throw error;
    },
    now: Date.now,
    connections: { poolSize: 8, acquireTimeoutMs: 10_000, statementTimeoutMs: 10_000, prepare },
  });
  t.after(() => store.close());
  return store;
}

function creation(id: number, key: string | null = null): Write {
  return create(BigInt(id), { owner: OWNER, idempotencyKey: key });
}

const deletion = (id: number): Write => ({ kind: 'deletePlant', owner: OWNER, id: BigInt(id) });

/** Calls every operation of a store, one by one and together. */
async function assertWorks(store: Store): Promise<void> {
  const [first, second] = [mintSecret(), mintSecret()].map((secret) =>
    newToken(secret, OWNER, { scopes, expiresAt: null, name: 'test' }, Date.now()),
  );
  if (first === undefined || second === undefined) throw new Error('there are no tokens');
  const script: readonly (readonly [Write, Outcome])[] = [
    [creation(1), 'created'],
    [creation(1), 'idTaken'],
    [creation(2, 'key'), 'created'],
    [creation(2, 'key'), 'createdReplayed'],
    [creation(3, 'key'), 'keyReused'],
    [creation(1, 'other key'), 'idTaken'],
    [creation(1, 'other key'), 'idTaken'],
    [deletion(1), 'deleted'],
    [deletion(1), 'absent'],
    [{ kind: 'createToken', token: first }, 'done'],
    [{ kind: 'recordTokenUse', id: first.id, at: Date.now() }, 'done'],
    [{ kind: 'revokeToken', id: first.id, at: Date.now() }, 'done'],
  ];
  for (const [write, outcome] of script) assert.equal(await store.write(write), outcome);

  // All together, with lists and lookups between, so that connections change their clients.
  const ids = Array.from({ length: 300 }, (_, index) => 100 + index);
  await store.write({ kind: 'createToken', token: second });
  const crowd = ids.flatMap((id) => [
    store.write(id % 3 === 0 ? creation(id, `key-${id}`) : creation(id)),
    ...(id % 10 === 0
      ? [store.listPlants(OWNER, ALL, upTo(10)), store.findToken(second.digest), store.ping()]
      : []),
  ]);
  await Promise.all(crowd);
  await Promise.all(ids.filter((id) => id % 2 === 0).map((id) => store.write(deletion(id))));
  const { json } = await store.listPlants(OWNER, ALL, upTo(1_000));
  const left = [2, ...ids.filter((id) => id % 2 === 1)];
  assert.deepEqual(
    JSON.parse(json),
    left.map((id) => ({ name: `plant ${id}` })),
  );
  assert.equal((await store.findToken(second.digest))?.id, second.id);
  assert.equal((await store.findTokenById(first.id))?.id, first.id);
  assert.equal(await store.hasValidTokens(0), true);
}

/** Collects the names of prepared statements from the bytes of clients (PostgreSQL documentation, §54.7: Parse). */
function createNameReader(): { names: Set<string>; read: (bytes: Buffer, connection: Socket) => void } {
  const names = new Set<string>();
  const unread = new Map<Socket, Buffer>();

  function read(bytes: Buffer, connection: Socket): void {
    const before = unread.get(connection);
    let rest = before === undefined ? bytes.subarray(bytes.readInt32BE(0)) : Buffer.concat([before, bytes]);
    while (rest.length >= 5 && rest.length > rest.readInt32BE(1)) {
      const end = 1 + rest.readInt32BE(1);
      if (rest[0] === 'P'.charCodeAt(0)) names.add(rest.toString('utf8', 5, rest.indexOf(0, 5)));
      rest = rest.subarray(end);
    }
    unread.set(connection, rest);
  }

  return { names, read };
}

for (const prepare of [true, false]) {
  test(`statements ${prepare ? 'have names when they may be' : 'have no names unless they may be'} prepared`, async (t) => {
    const url = await freshDatabase(t);
    const { names, read } = createNameReader();
    const proxy = await startTcpProxy(t, Number(url.port), read);
    await assertWorks(await open(t, through(url, proxy.port), prepare));
    assert.ok(names.has(prepare ? 'create-plants' : ''), [...names].join());
    if (!prepare) assert.deepEqual([...names], ['']);
  });
}

const NEEDS_POOLER = needs('pgbouncer', HAS_PGBOUNCER);

test(
  'server behind PgBouncer becomes a standby → reads are rejected and /ready is 503',
  NEEDS_POOLER,
  async (t) => {
    const { primary, standby } = await startPair(t, { prepare: migrateStore });
    const { port } = await startPgBouncer(t, new URL(primary.url()));
    const service = await startService(t, through(new URL(primary.url()), port), {
      databasePrepare: 'false',
    });
    const headers = bearer(await service.token());
    const list = async () => (await fetch(`${service.url}/plants`, { headers })).status;
    const ready = async () => (await fetch(`${service.adminUrl}/ready`)).status;
    // Several client connections of the pooler, all idle afterwards.
    assert.deepEqual(await Promise.all(Array.from({ length: 8 }, list)), Array(8).fill(200));
    assert.equal(await ready(), 200);

    await primary.stop();
    await standby.sql('SELECT pg_promote()');
    await writeFile(join(primary.folder, 'standby.signal'), '');
    await primary.start();
    const promoted = await open(t, standby.url(), true);
    await promoted.write(creation(1));
    for (let round = 0; round < 20; round += 1) {
      assert.equal(await list(), 503);
      assert.equal(await ready(), 503);
    }
    await primary.sql('SELECT pg_promote()');
    await until(async () => (await list()) === 200 && (await ready()) === 200);
  },
);

for (const prepare of [false, true]) {
  const wanted = prepare ? needs('pgbouncer 1.21 or newer', KEEPS_STATEMENTS) : NEEDS_POOLER;
  test(
    `a store works behind PgBouncer in transaction mode, ${prepare ? 'with' : 'without'} prepared statements`,
    wanted,
    async (t) => {
      const url = await freshDatabase(t);
      const { port } = await startPgBouncer(t, url);
      await assertWorks(await open(t, through(url, port), prepare));
    },
  );
}

test(
  'commands run behind PgBouncer in transaction mode → its sessions keep the timeouts of the account',
  NEEDS_POOLER,
  async (t) => {
    const url = await freshDatabase(t);
    const wanted = {
      statement_timeout: '20s',
      lock_timeout: '18s',
      idle_in_transaction_session_timeout: '20s',
    };
    for (const [name, value] of Object.entries(wanted))
      await execute(url.href, `ALTER DATABASE ${url.pathname.slice(1)} SET ${name} = '${value}'`);
    const pooled = through(url, (await startPgBouncer(t, url)).port);

    /** The settings of all sessions of the pooler, each in a transaction. */
    async function settings() {
      const clients = Array.from({ length: POOL_SIZE }, () => new pg.Client({ connectionString: pooled }));
      try {
        for (const client of clients) await client.connect();
        for (const client of clients) await client.query('BEGIN');
        const text = `SELECT ${Object.keys(wanted).map((name) => `current_setting('${name}') AS ${name}`)}`;
        return await Promise.all(clients.map(async (client) => (await client.query(text)).rows[0]));
      } finally {
        for (const client of clients) await client.end();
      }
    }

    const { run, token, databaseUrl } = await newInstallation(t);
    const env = {
      DATABASE_URL: pooled,
      DATABASE_PREPARE: 'false',
      DATABASE_STATEMENT_TIMEOUT: '20000',
      DATABASE_ACQUIRE_TIMEOUT: '20000',
    };
    await token();
    for (const args of [
      ['copy', databaseUrl, pooled],
      ['migrate'],
      ['token', 'create', 'alice'],
      ['token', 'list'],
      ['import', 'alice', '-'],
      ['export', 'alice', '-'],
      ['check'],
      ['copy', pooled, `${databaseUrl}-2`],
    ]) {
      const { code, stderr } = await run(args, {
        env,
        stdin: Readable.from([Buffer.from('{"id":1,"name":"Alder"}\n')]),
      });
      assert.equal(code, 0, stderr);
      assert.deepEqual(await settings(), Array(POOL_SIZE).fill(wanted), args.join(' '));
    }
  },
);
