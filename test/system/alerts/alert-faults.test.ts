import assert from 'node:assert/strict';
import { once } from 'node:events';
import { stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { migrateStore } from '../../../src/store/open-engine.ts';
import { fillStore } from '../../long/long-list.ts';
import { run } from '../../support/deploy-files.ts';
import { engines, freshFolder } from '../../support/engines.ts';
import {
  type Command,
  createUntilFailure,
  limitedFiles,
  SHORT_NAME,
} from '../../support/faults/disk-limits.ts';
import { holdWrites } from '../../support/faults/hold-writes.ts';
import { canRun, needs, needsProgram } from '../../support/needs.ts';
import { until } from '../../support/patience.ts';
import { newInstallation, type ProgramOptions, type Service } from '../../support/program.ts';
import { freePort, listenOnFreePort } from '../../support/servers/free-port.ts';
import { startPostgres } from '../../support/servers/postgres-server.ts';
import { type Prometheus, startPrometheus } from '../../support/servers/prometheus.ts';
import { bearer } from '../../support/service.ts';
import { createToken } from '../../support/service-instances.ts';

/** Longer than any range and duration of the rules but the hour. */
const WINDOW_SECONDS = 12;
/** About a hundred requests a second: more would only take CPU time. */
const LIGHT: Load = { clients: 4, pauseMs: 100 };
const STEADY: Load = { clients: 16, pauseMs: 20 };
const FULL: Load = { clients: 16, pauseMs: 0 };
/** More writes than `PlantStoreWritesWait` allows. */
const MANY_CLIENTS: Load = { clients: 250, pauseMs: 20 };

interface Load {
  readonly clients: number;
  /** Between the rounds of a client. */
  readonly pauseMs: number;
}

interface Running {
  readonly service: Service;
  readonly prometheus: Prometheus;
  readonly databaseUrl: string;
  readonly token: string;
  /** Clients that create, list and delete until the test ends. */
  load(load?: Load): void;
  /** Kills the service and starts it again. */
  restart(): Promise<void>;
}

/** Starts a service and a Prometheus that scrapes it. */
async function start(
  t: TestContext,
  { databaseUrl, ...options }: ProgramOptions & { databaseUrl?: string; flags?: readonly string[] } = {},
): Promise<Running> {
  const installation = await newInstallation(t);
  const url = databaseUrl ?? installation.databaseUrl;
  const token = databaseUrl === undefined ? await installation.token() : (await createToken(url)).secret;
  const serve = () => installation.serve({ ...options, env: { DATABASE_URL: url, ...options.env } });
  const service = await serve();
  const prometheus = await startPrometheus(t, service.adminUrl);
  const end = new AbortController();
  t.after(() => end.abort());
  let ids = 0;

  async function runClient(pauseMs: number): Promise<void> {
    for (; !end.signal.aborted; await setTimeout(pauseMs)) {
      ids += 1;
      const id = ids;
      const headers = { ...bearer(token), 'content-type': 'application/json' };
      const body = JSON.stringify({ id, name: 'Alder '.repeat(100) });
      const isCreated = await send(`${service.url}/plants`, { method: 'POST', headers, body });
      await send(`${service.url}/plants?limit=5`, { headers: bearer(token) });
      if (isCreated && id % 2 === 0)
        await send(`${service.url}/plants/${id}`, { method: 'DELETE', headers: bearer(token) });
    }
  }

  async function send(to: string, init: RequestInit): Promise<boolean> {
    const response = await fetch(to, { ...init, signal: end.signal }).catch(() => undefined);
    await response?.text().catch(() => undefined);
    return response?.ok === true;
  }

  const load = ({ clients, pauseMs } = LIGHT): void => {
    for (let client = 0; client < clients; client += 1) void runClient(pauseMs);
  };
  let last = service;
  const restart = async (): Promise<void> => {
    last.kill('SIGKILL');
    await last.ended;
    last = await serve();
  };
  return { service, prometheus, databaseUrl: url, token, load, restart };
}

/** Asserts that the alerts fire, and no other in the time after, but for the allowed ones. */
async function assertOnly(
  prometheus: Prometheus,
  alerts: readonly string[],
  allowed: readonly string[] = [],
): Promise<void> {
  await prometheus.fires(alerts);
  await prometheus.scrapes(WINDOW_SECONDS);
  const fired = await prometheus.fired();
  assert.deepEqual(
    fired.filter((name) => !allowed.includes(name)),
    alerts.toSorted(),
  );
}

/** Opens connections with a started request each, which are not idle. They close after the test. */
async function openBusy(t: TestContext, url: string, count: number): Promise<readonly Socket[]> {
  const { hostname, port } = new URL(url);
  const sockets = Array.from({ length: count }, () =>
    connect(Number(port), hostname).on('error', () => undefined),
  );
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
  });
  // The first response shows that the service has read the start of the second request.
  for (const socket of sockets) socket.write('GET / HTTP/1.1\r\nHost: plants.test\r\n\r\nGET ');
  await Promise.all(sockets.map((socket) => once(socket, 'data')));
  return sockets;
}

/** Smaller than the filled store, so that its file cannot grow, and the write-ahead log only up to this. */
const LIMIT_KIB = 2_048;
const limited = (command: Command): Command => limitedFiles(command, LIMIT_KIB);

const CAN_TRACE = needs('strace', canRun('strace', '-o', '/dev/null', 'true'));

/** After 29 fsyncs, a thread waits for this time, with its unit, in each. */
function delayedFsync(command: Command, time: string): Command {
  const calls = 'fsync,fdatasync';
  const fault = `inject=${calls}:delay_enter=${time}:when=30+`;
  return ['strace', '-D', '-f', '-qq', '-o', '/dev/null', '-e', `trace=${calls}`, '-e', fault, ...command];
}

const MAX_FILES = 60;
const fewFiles = (command: Command): Command => [
  ...['bash', '-c', `ulimit -n ${MAX_FILES} && exec "$@"`, 'bash'],
  ...command,
];

/** A store that exceeds the limit, with the plants of another owner than that of the requests. */
async function filledStore(t: TestContext): Promise<string> {
  const { databaseUrl, file, token } = await newInstallation(t);
  await token('bob');
  await fillStore(databaseUrl, 'bob', 30_000, 100);
  assert.ok((await stat(file)).size > LIMIT_KIB * 1_024);
  return databaseUrl;
}

// Concurrent, since an alert mostly waits.
describe('alerts of a real Prometheus', { ...needsProgram('prometheus'), concurrency: 3 }, () => {
  for (const engine of engines) {
    it(`healthy service under load → none, on ${engine.name}`, async (t) => {
      const { prometheus, load } = await start(t, { databaseUrl: await engine.freshUrl(t) });
      load(STEADY);
      await assertOnly(prometheus, []);
    });
  }

  it('rejected tokens and invalid requests → none', async (t) => {
    const { service, prometheus, load } = await start(t, { flags: ['--refused-token-limit', '50'] });
    load();
    const statuses = new Set<number>();
    for (let count = 0; count < 500; count += 1) {
      const { status } = await fetch(`${service.url}/plants`, { headers: bearer(`plant_${count}`) });
      statuses.add(status);
    }
    assert.deepEqual([...statuses], [401, 429]);
    await assertOnly(prometheus, []);
  });

  it('service killed → PlantStoreDown', async (t) => {
    const { service, prometheus, load } = await start(t);
    load();
    await prometheus.scrapes(2);
    service.kill('SIGKILL');
    await assertOnly(prometheus, ['PlantStoreDown']);
  });

  it('target is another exporter → PlantStoreNotMeasured', async (t) => {
    // Prometheus 3 takes metrics only with a Content-Type that it knows.
    const type = { 'content-type': 'text/plain; version=0.0.4' };
    const exporter = createServer((_request, response) =>
      response.writeHead(200, type).end('other_metric 1\n'),
    );
    const port = await listenOnFreePort(exporter);
    t.after(() => exporter.close());
    await assertOnly(await startPrometheus(t, `http://127.0.0.1:${port}`), ['PlantStoreNotMeasured']);
  });

  it('service killed and restarted again and again → PlantStoreRestarts', async (t) => {
    const flags = ['--admin-port', String(await freePort())];
    const { prometheus, restart } = await start(t, { flags });
    await until(async () => {
      // The metric has a resolution of a second.
      await prometheus.scrapes(1);
      await restart();
      return (await prometheus.fired()).includes('PlantStoreRestarts');
    });
    await assertOnly(prometheus, ['PlantStoreRestarts'], ['PlantStoreDown']);
  });

  it('PostgreSQL down → not ready, and requests and commits fail', async (t) => {
    const server = await startPostgres(['fsync = off']);
    t.after(() => server.remove());
    const { prometheus, load } = await start(t, { databaseUrl: server.url() });
    load();
    await prometheus.scrapes(2);
    // The stop breaks this write. Later requests fail before they write: no token can be looked up.
    const held = await holdWrites(server.url());
    t.after(() => held.release());
    const waiting = 'SELECT 1 FROM pg_locks WHERE NOT granted';
    await until(async () => (await server.sql(waiting)).length > 0);
    await server.stop('immediate');
    await assertOnly(prometheus, ['PlantStoreCommitsFail', 'PlantStoreFails', 'PlantStoreNotReady']);
  });

  it('full disk → commits and requests fail, but the service is ready', async (t) => {
    const databaseUrl = await filledStore(t);
    const { prometheus, load } = await start(t, { databaseUrl, wrap: limited });
    load();
    const alerts = ['PlantStoreCommitsFail', 'PlantStoreFails', 'PlantStoreWritesFail'];
    // A checkpoint fails too if one is due.
    await assertOnly(prometheus, alerts, ['PlantStoreCheckpointsFail']);
  });

  it('another process holds the write lock → writes wait, then commits fail', async (t) => {
    const { prometheus, load, databaseUrl } = await start(t);
    load(MANY_CLIENTS);
    await prometheus.scrapes(2);
    const held = await holdWrites(databaseUrl);
    t.after(() => held.release());
    await assertOnly(prometheus, [
      'PlantStoreCommitsFail',
      'PlantStoreFails',
      'PlantStoreShareExceeded',
      'PlantStoreWritesFail',
      'PlantStoreWritesWait',
    ]);
  });

  it('an owner sends more requests at once than its share → PlantStoreShareExceeded', async (t) => {
    const { prometheus, load } = await start(t, { flags: ['--max-in-flight', '8'] });
    load(FULL);
    await assertOnly(prometheus, ['PlantStoreShareExceeded']);
  });

  it('the disk hangs → PlantStoreWritesHang, and the service is ready', CAN_TRACE, async (t) => {
    const wrap = (command: Command): Command => delayedFsync(command, '600s');
    const { service, prometheus, load } = await start(t, { wrap });
    load();
    await assertOnly(prometheus, ['PlantStoreWritesHang']);
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
  });

  it('the disk is slow → PlantStoreCommitsSlow', CAN_TRACE, async (t) => {
    const wrap = (command: Command): Command => delayedFsync(command, '700ms');
    const { prometheus, load } = await start(t, { wrap });
    load();
    await assertOnly(prometheus, ['PlantStoreCommitsSlow']);
  });

  it('checkpoints fail → PlantStoreCheckpointsFail', async (t) => {
    const databaseUrl = await filledStore(t);
    const { service, prometheus, token } = await start(t, { databaseUrl, wrap: limited });
    // The file cannot grow any more, and the write-ahead log can.
    const creations = { name: SHORT_NAME, from: 9_200_000_000_000_000_000n, limit: 100 };
    assert.equal((await createUntilFailure(service, token, creations)).failure, undefined);
    await assertOnly(prometheus, ['PlantStoreCheckpointsFail']);
  });

  it('failover to a primary on an older timeline → PlantStoreTimelineRegressed', async (t) => {
    const [newer, older] = await Promise.all([
      startPostgres(['fsync = off']),
      startPostgres(['fsync = off']),
    ]);
    t.after(async () => void (await Promise.all([newer.remove(), older.remove()])));
    await migrateStore(older.url());
    await newer.stop();
    await writeFile(join(newer.folder, 'standby.signal'), '');
    await newer.start();
    await newer.sql('SELECT pg_promote()');
    const databaseUrl = newer.url().replace(/(?=\/postgres$)/, `,127.0.0.1:${older.port}`);
    const { service, prometheus, token } = await start(t, { databaseUrl });
    const list = () => fetch(`${service.url}/plants`, { headers: bearer(token) });
    assert.equal((await list()).status, 200);
    // The stop would break a write that records the use of the token.
    await until(async () => (await newer.sql('SELECT 1 FROM tokens WHERE last_used_at > 0')).length > 0);
    await newer.stop('immediate');
    // The other server has another store, without this token.
    await until(async () => (await list()).status === 401);
    await assertOnly(prometheus, ['PlantStoreTimelineRegressed']);
  });

  it('busy connections up to the limit → PlantStoreConnectionsRejected', async (t) => {
    const { service, prometheus } = await start(t, { flags: ['--max-connections', '3'] });
    await openBusy(t, service.url, 3);
    assert.equal((await fetch(service.url)).status, 503);
    await assertOnly(prometheus, ['PlantStoreConnectionsRejected']);
  });

  it('certificate of one day → PlantStoreCertificateExpires', needsProgram('openssl'), async (t) => {
    const folder = await freshFolder();
    const [key, certificate] = [join(folder, 'tls.key'), join(folder, 'tls.pem')];
    const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256'];
    const request = ['req', '-x509', ...curve, '-nodes', '-days', '1', '-subj', '/CN=plants.test'];
    await run('openssl', [...request, '-keyout', key, '-out', certificate]);
    const { prometheus } = await start(t, { flags: ['--tls-key', key, '--tls-cert', certificate] });
    await assertOnly(prometheus, ['PlantStoreCertificateExpires']);
  });

  it('a client uses a token that expires in five days → PlantStoreTokensExpire', async (t) => {
    const { prometheus, databaseUrl, load } = await start(t);
    const db = new DatabaseSync(databaseUrl.replace(/^sqlite:/, ''));
    db.exec('UPDATE tokens SET created_at = created_at - 7344000000, expires_at = expires_at - 7344000000');
    db.close();
    load();
    await assertOnly(prometheus, ['PlantStoreTokensExpire']);
  });

  it('the log is not read → PlantStoreLogLinesDropped', async (t) => {
    const { prometheus, load } = await start(t, {
      // Passes the first line on, which names the ports.
      wrap: (command) => ['bash', '-c', 'exec "$@" > >(head -n 1; exec sleep 600)', 'bash', ...command],
    });
    load(FULL);
    await assertOnly(prometheus, ['PlantStoreLogLinesDropped']);
  });

  it('few file descriptors left → PlantStoreFileDescriptors', async (t) => {
    const { service, prometheus } = await start(t, { wrap: fewFiles });
    await openBusy(t, service.url, 20);
    await assertOnly(prometheus, ['PlantStoreFileDescriptors']);
  });

  it('no file descriptor left → PlantStoreFileDescriptorsExhausted', async (t) => {
    const { service, prometheus } = await start(t, { wrap: fewFiles });
    await prometheus.scrapes(1);
    const { hostname, port } = new URL(service.url);
    const sockets = Array.from({ length: 2 * MAX_FILES }, () =>
      connect(Number(port), hostname).on('error', () => undefined),
    );
    t.after(async () => {
      for (const socket of sockets) socket.destroy();
    });
    await Promise.race(sockets.map((socket) => once(socket, 'close')));
    // Without its connection, Prometheus cannot scrape.
    const alerts = ['PlantStoreFileDescriptors', 'PlantStoreFileDescriptorsExhausted'];
    await assertOnly(prometheus, alerts, ['PlantStoreDown']);
  });

  it('a reader keeps the write-ahead log → PlantStoreLogGrows', async (t) => {
    const { prometheus, databaseUrl, load } = await start(t);
    const file = databaseUrl.slice('sqlite:'.length);
    using reader = new DatabaseSync(file);
    reader.exec('BEGIN; SELECT count(*) FROM plants');
    using writer = new DatabaseSync(file);
    writer.exec('PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0; PRAGMA busy_timeout = 60000');
    writer.exec('CREATE TABLE filler (content BLOB)');
    for (let mebibytes = 0; mebibytes < 540; mebibytes += 20)
      writer.exec('INSERT INTO filler SELECT zeroblob(20971520)');
    // Begins after these long writes, whose lock could make a write of the service time out.
    load();
    await assertOnly(prometheus, ['PlantStoreLogGrows']);
  });
});
