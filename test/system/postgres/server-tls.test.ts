// cspell:words hostssl
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { chown, copyFile, readFile, rename, stat, writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, type TestContext, test } from 'node:test';
import { promisify } from 'node:util';
import { openStore } from '../../../src/store/open-engine.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { type Store, StoreNotOpened } from '../../../src/store/store.ts';
import { connections, freshFolder } from '../../support/engines.ts';
import { needsProgram } from '../../support/needs.ts';
import { until } from '../../support/patience.ts';
import { newInstallation } from '../../support/program.ts';
import { type PostgresServer, startPostgres } from '../../support/servers/postgres-server.ts';
import { startTcpProxy } from '../../support/servers/tcp-proxy.ts';

const run = promisify(execFile);

/** Two hosts of the server: its certificate is valid for the first only. */
const NAMED = 'localhost';
const UNNAMED = '127.0.0.1';

/** An account that logs in by a client certificate. */
const CERTIFIED = 'certified';

const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

const NEEDS_OPENSSL = needsProgram('openssl');

let folder: string;
let withTls: PostgresServer;
let withoutTls: PostgresServer;

before(async () => {
  if (NEEDS_OPENSSL.skip !== undefined) return;
  folder = await freshFolder();
  await Promise.all([createAuthority('authority'), createAuthority('stranger')]);
  await Promise.all([
    createCertificate('authority', 'server', `/CN=${NAMED}`, '-addext', `subjectAltName=DNS:${NAMED}`),
    createCertificate('authority', 'client', `/CN=${CERTIFIED}`),
    createCertificate('authority', 'other', '/CN=postgres'),
    createCertificate('stranger', 'forged', `/CN=${CERTIFIED}`),
  ]);
  [withTls, withoutTls] = await Promise.all([startPostgres(['fsync = off']), startPostgres(['fsync = off'])]);
  await turnOnTls(withTls);
});

after(async () => {
  await Promise.all([withTls?.remove(), withoutTls?.remove()]);
});

async function openssl(...args: readonly string[]): Promise<void> {
  await run('openssl', [...args], { cwd: folder });
}

async function createAuthority(name: string): Promise<void> {
  const files = ['-keyout', `${name}.key`, '-out', `${name}.crt`];
  await openssl('req', '-x509', ...NEW_KEY, ...files, '-days', '2', '-subj', `/CN=${name}`);
}

async function createCertificate(
  authority: string,
  name: string,
  subject: string,
  ...extensions: readonly string[]
): Promise<void> {
  const signed = ['-CA', `${authority}.crt`, '-CAkey', `${authority}.key`, '-days', '2'];
  const files = ['-keyout', `${name}.key`, '-out', `${name}.crt`];
  await openssl('req', '-x509', ...NEW_KEY, ...signed, ...files, '-subj', subject, ...extensions);
}

async function turnOnTls(server: PostgresServer): Promise<void> {
  const { uid, gid } = await stat(server.folder);
  for (const file of ['server.key', 'server.crt', 'authority.crt']) {
    await copyFile(join(folder, file), join(server.folder, file));
    await chown(join(server.folder, file), uid, gid);
  }
  await server.sql('ALTER SYSTEM SET ssl = on');
  await server.sql("ALTER SYSTEM SET ssl_ca_file = 'authority.crt'");
  await server.sql(`CREATE ROLE ${CERTIFIED} LOGIN`);
  const rules = join(server.folder, 'pg_hba.conf');
  await writeFile(rules, `hostssl all ${CERTIFIED} all cert\n${await readFile(rules, 'utf8')}`);
  await server.stop();
  await server.start();
}

function open(server: PostgresServer, host: string, query: string): Promise<Store> {
  const url = `postgres://postgres@${host}:${server.port}/postgres?${query}`;
  return openStore(
    url.replace('AUTHORITY', join(folder, 'authority.crt')).replace('STRANGER', join(folder, 'stranger.crt')),
    {
      onFatal: (error) => {
        throw error;
      },
      now: Date.now,
      connections,
    },
  );
}

/** Connects as `CERTIFIED` with a client certificate, if one is named. */
function connectByCertificate(t: Pick<TestContext, 'after'>, name?: string): Connections {
  const file = (path: string): string => encodeURIComponent(join(folder, path));
  const own = name === undefined ? '' : `&sslcert=${file(`${name}.crt`)}&sslkey=${file(`${name}.key`)}`;
  const url = `postgres://${CERTIFIED}@${NAMED}:${withTls.port}/postgres?sslmode=verify-full&sslrootcert=${file('authority.crt')}${own}`;
  const certified = new Connections(url, { ...connections, poolSize: 1 });
  t.after(() => certified.close());
  return certified;
}

/** The time of a server, in its format. */
async function timeAt(server: PostgresServer): Promise<string> {
  const [row] = await server.sql('SELECT clock_timestamp()::text AS time');
  return String(row?.time);
}

/** The TLS of connections made after a time: those of an earlier store may still be open. */
async function encryptionSince(server: PostgresServer, time: string): Promise<readonly unknown[]> {
  const rows = await server.sql(
    `SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
       WHERE application_name = 'plant-store' AND backend_start >= '${time}'`,
  );
  return rows.map(({ ssl }) => ssl);
}

describe('a server with TLS', NEEDS_OPENSSL, () => {
  const accepted: readonly (readonly [query: string, host: string, isEncrypted: boolean])[] = [
    ['', UNNAMED, false],
    ['sslmode=disable', UNNAMED, false],
    ['sslmode=prefer', UNNAMED, true],
    ['sslmode=require', UNNAMED, true],
    ['sslmode=require&sslrootcert=AUTHORITY', UNNAMED, true],
    ['sslmode=verify-ca&sslrootcert=AUTHORITY', UNNAMED, true],
    ['sslmode=verify-full&sslrootcert=AUTHORITY', NAMED, true],
  ];
  for (const [query, host, isEncrypted] of accepted) {
    test(`is used ${isEncrypted ? 'by TLS' : 'in plain text'} at ${host} with '${query}'`, async () => {
      const before = await timeAt(withTls);
      const store = await open(withTls, host, query);
      try {
        await store.ping();
        assert.deepEqual(await encryptionSince(withTls, before), [isEncrypted]);
      } finally {
        await store.close();
      }
    });
  }

  const rejected: readonly (readonly [query: string, host: string, why: RegExp])[] = [
    ['sslmode=require&sslrootcert=STRANGER', NAMED, /certificate/],
    ['sslmode=verify-ca&sslrootcert=STRANGER', NAMED, /certificate/],
    ['sslmode=verify-ca', NAMED, /sslrootcert/],
    ['sslmode=verify-full&sslrootcert=STRANGER', NAMED, /certificate/],
    ['sslmode=verify-full', NAMED, /certificate/],
    ['sslmode=allow', NAMED, /certificate/],
    ['sslmode=verify-full&sslrootcert=/nowhere/ca.crt', NAMED, /\/nowhere\/ca\.crt/],
    ['sslmode=verify-full&sslrootcert=AUTHORITY', UNNAMED, /does not match|altnames/],
  ];
  for (const [query, host, why] of rejected) {
    test(`is rejected at ${host} with '${query}', and the message says why`, async () => {
      await assertNotOpened(open(withTls, host, query), why);
    });
  }

  test('that wants a client certificate → its owner logs in; others are rejected, and the message says why', async (t) => {
    for (const [name, why] of [
      ['forged', /certificate|unknown ca/],
      ['other', /authentication failed/],
      [undefined, /certificate/],
    ] as const)
      await assert.rejects(connectByCertificate(t, name).query({ text: 'SELECT 1' }), why, name);
    const [row] = await connectByCertificate(t, 'client').query({ text: 'SELECT current_user AS name' });
    assert.deepEqual({ ...row }, { name: CERTIFIED });
  });

  test('that wants a client certificate → each new connection reads the files again', async (t) => {
    const renewed = connectByCertificate(t, 'renewed');
    const replace = async (name: string): Promise<void> => {
      for (const end of ['key', 'crt']) {
        await copyFile(join(folder, `${name}.${end}`), join(folder, `new.${end}`));
        await rename(join(folder, `new.${end}`), join(folder, `renewed.${end}`));
      }
      await withTls.sql(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '${CERTIFIED}'`,
      );
      await until(() => renewed.count().idle === 0);
    };
    await replace('client');
    await renewed.query({ text: 'SELECT 1' });
    await replace('forged');
    await assert.rejects(renewed.query({ text: 'SELECT 1' }), /certificate|unknown ca/);
    await replace('client');
    await renewed.query({ text: 'SELECT 1' });
  });

  test('that is silent → the connection is reset, as without TLS', async (t) => {
    const accepted = new Set<Socket>();
    const proxy = await startTcpProxy(t, withTls.port, (_, socket) => accepted.add(socket));
    const url = `postgres://postgres@127.0.0.1:${proxy.port}/postgres?sslmode=prefer`;
    const silent = new Connections(url, { ...connections, poolSize: 1, statementTimeoutMs: 100 });
    t.after(() => silent.close());
    await silent.query({ text: 'SELECT 1' });
    proxy.stall();
    const [socket = assert.fail()] = accepted;
    const ended = once(socket, 'error');
    await assert.rejects(silent.query({ text: 'SELECT 1' }), /Query read timeout/);
    const [error] = await ended;
    assert.equal(error.code, 'ECONNRESET');
  });
});

describe('a server without TLS', NEEDS_OPENSSL, () => {
  test('on another machine → one warning, unless the URL asks for plain text', async (t) => {
    const installation = await newInstallation(t);
    // Leads to this machine, but not by an address that shows it.
    const url = `postgres://postgres:secret@0.0.0.0:${withoutTls.port}/postgres`;
    for (const [databaseUrl, stores] of [
      [url, [url.replace('secret', '***')]],
      [`${url}?sslmode=disable`, []],
    ] as const) {
      const service = await installation.serve({ env: { DATABASE_URL: databaseUrl } });
      await service.stop();
      const warnings = service.log.filter(({ msg }) => String(msg).includes('reached without TLS'));
      assert.deepEqual(
        warnings.map(({ store }) => store),
        stores,
      );
    }
  });

  for (const query of ['sslmode=prefer', 'sslmode=require', 'sslmode=verify-full&sslrootcert=AUTHORITY']) {
    test(`is rejected with '${query}', without a fallback to plain text`, async () => {
      await assertNotOpened(open(withoutTls, NAMED, query), /does not support SSL/);
    });
  }
});

async function assertNotOpened(opened: Promise<Store>, why: RegExp): Promise<void> {
  await assert.rejects(opened, (error: unknown) => {
    assert.ok(error instanceof StoreNotOpened, String(error));
    assert.match(error.message, why);
    return true;
  });
}
