import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { fillStore } from '../long/long-list.ts';
import { Connection } from '../support/clients/keep-alive-client.ts';
import { openWire } from '../support/clients/raw-connection.ts';
import { engines, postgres, rowsOf } from '../support/engines.ts';
import { damage } from '../support/faults/damaged-file.ts';
import { holdMigration } from '../support/faults/hold-migration.ts';
import { holdWrites } from '../support/faults/hold-writes.ts';
import { until } from '../support/patience.ts';
import { endOf, newInstallation, type Program, type Service, TOGETHER } from '../support/program.ts';
import type { Ended } from '../support/run-command.ts';
import { listenOnFreePort } from '../support/servers/free-port.ts';
import { startCollector } from '../support/servers/otlp-collector.ts';
import { startTcpProxy } from '../support/servers/tcp-proxy.ts';
import { bearer } from '../support/service.ts';

const PRODUCTION = { NODE_ENV: 'production' };
const ALDER = { name: 'Alder', tag: null };

/** Longer than a stop without a delay may take, and long enough for all steps of a test, also on a busy machine. */
const PAUSE_MS = 10_000;
const PAUSE = ['--stop-delay', String(PAUSE_MS)];

const SESSIONS = `SELECT pid FROM pg_stat_activity
                   WHERE datname = current_database() AND application_name = 'plant-store'`;
const TABLES = `SELECT tablename FROM pg_tables WHERE schemaname = 'public'`;

/** Blocks a service soon after SIGTERM: for a second, and until a file `asked` exists. */
const BLOCKS = `data:text/javascript,${encodeURIComponent(
  `import { existsSync, writeSync } from 'node:fs';
   const never = new Int32Array(new SharedArrayBuffer(4));
   const block = () => {
     writeSync(1, 'blocked');
     const until = performance.now() + 1_000;
     while (performance.now() < until || !existsSync('asked')) Atomics.wait(never, 0, 0, 20);
   };
   // Runs after pending input, and before the timers that expire meanwhile.
   process.on('SIGTERM', () => setTimeout(setImmediate, 50, block));`,
)}`;

describe('stop with a delay', TOGETHER, () => {
  it('/ready fails first; requests on old and new connections still succeed', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    const service = await installation.serve({ env: PRODUCTION, flags: PAUSE });
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
    const signalled = performance.now();
    await sendSignal(service, 'SIGTERM');
    const ready = await fetch(`${service.adminUrl}/ready`);
    assert.equal(ready.status, 503);
    assert.match(await ready.text(), /^\{"error":50300,"message":".*stopping.*"\}$/);
    assert.equal((await fetch(`${service.adminUrl}/live`)).status, 200);
    const answer = await fetch(`${service.url}/plants`, { headers: bearer(token) });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('connection'), 'close');
    assert.equal((await service.ended).code, 0);
    assert.ok(performance.now() - signalled >= PAUSE_MS);
  });

  it('fatal store error during the delay → exit code 1', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    await fillStore(installation.databaseUrl, 'alice', 50_000, 100);
    const service = await installation.serve({ env: PRODUCTION, flags: PAUSE });
    await sendSignal(service, 'SIGTERM');
    await damage(installation.file);
    await (await fetch(`${service.url}/plants`, { headers: bearer(token) })).text().catch(() => undefined);
    assert.equal((await service.ended).code, 1);
    assert.ok(service.log.some(({ msg }) => String(msg).startsWith('fatal store error')));
  });

  it('SIGTERM during the delay after a fatal store error → exit code 1', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    await fillStore(installation.databaseUrl, 'alice', 50_000, 100);
    const service = await installation.serve({ env: PRODUCTION, flags: ['--stop-delay', '1000'] });
    await damage(installation.file);
    const fatal = service.logged(({ msg }) => String(msg).startsWith('fatal store error'));
    const listed = fetch(`${service.url}/plants`, { headers: bearer(token) });
    await fatal;
    service.kill('SIGTERM');
    await listed.then((response) => response.text()).catch(() => undefined);
    assert.equal((await endOf(service)).code, 1);
  });
});

// Concurrent, since most tests wait.
describe('stop', { concurrency: 3 }, () => {
  it('SIGHUP without TLS and without a terminal → ignored, and logged', async (t) => {
    const service = await (await newInstallation(t)).serve({ env: PRODUCTION });
    service.kill('SIGHUP');
    await service.logged(({ msg }) => /^SIGHUP was ignored/.test(String(msg)));
    assert.equal((await fetch(`${service.url}/plants`)).status, 401);
    assert.equal((await service.stop()).code, 0);
  });

  it('SIGUSR1 → opens no debugger, and requests go on', async (t) => {
    const service = await (await newInstallation(t)).serve({ env: PRODUCTION });
    service.kill('SIGUSR1');
    // Handled after SIGUSR1, so that its line shows that both have arrived.
    service.kill('SIGHUP');
    await service.logged(({ msg }) => /^SIGHUP was ignored/.test(String(msg)));
    assert.equal((await fetch(`${service.url}/plants`)).status, 401);
    const { code, stderr } = await service.stop();
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
  });

  it('SIGUSR1 while the program is loaded → opens no debugger', async (t) => {
    const onLoad = `import { registerHooks } from 'node:module';
      registerHooks({ resolve(name, context, next) {
        if (/cli.main.[jt]s$/.test(name)) process.kill(process.pid, 'SIGUSR1');
        return next(name, context);
      } });`;
    const { code, stderr } = await (await newInstallation(t)).runProcess(['--help'], {
      wrap: ([node = '', ...rest]) => [node, '--import', `data:text/javascript,${onLoad}`, ...rest],
    });
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
  });

  it('SIGHUP of a terminal that closes, without TLS → stops', async (t) => {
    const onTerminal = { NODE_OPTIONS: '--import=data:text/javascript,process.stdin.isTTY=true' };
    const service = await (await newInstallation(t)).serve({ env: { ...PRODUCTION, ...onTerminal } });
    service.kill('SIGHUP');
    const { code, signal } = await endOf(service);
    assert.deepEqual({ code, signal }, { code: 0, signal: null });
    assert.ok(service.log.some(({ msg, signal }) => msg === 'stopping' && signal === 'SIGHUP'));
  });

  it('signal before the database answers → exit code 0', async (t) => {
    const installation = await newInstallation(t);
    const silent = createServer();
    const port = await listenOnFreePort(silent);
    const env = { ...PRODUCTION, DATABASE_URL: `postgres://u@127.0.0.1:${port}/plants` };
    const program = installation.start(['serve', '--port', '0', '--admin-port', '0'], { env });
    t.after(() => void silent.close());
    const [socket] = await once(silent, 'connection');
    t.after(() => void socket.destroy());
    program.kill('SIGTERM');
    assertStopped(await endOf(program), program);
  });

  it('signal during a migration → exit code 0, and the migration is rolled back', async (t) => {
    const installation = await newInstallation(t);
    const migration = await holdMigration(t);
    const env = { ...PRODUCTION, DATABASE_URL: migration.databaseUrl };
    const program = installation.start(['serve', '--port', '0', '--admin-port', '0'], { env });
    await migration.waits();
    program.kill('SIGINT');
    assertStopped(await endOf(program), program);
    await migration.release();
    await until(async () => (await rowsOf(env.DATABASE_URL, SESSIONS)).length === 0);
    assert.deepEqual(await rowsOf(env.DATABASE_URL, TABLES), []);
    assert.equal((await installation.run(['migrate'], { env })).code, 0);
  });

  it('unhandled rejection → logged, requests in flight finish, exit code 1', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    const fault = `process.on('SIGUSR2', () => void Promise.reject(new Error('planted')))`;
    const service = await installation.serve({
      env: PRODUCTION,
      flags: PAUSE,
      wrap: ([node = '', ...rest]) => [node, '--import', `data:text/javascript,${fault}`, ...rest],
    });
    const connection = new Connection(service.url, token);
    assert.equal((await connection.create(1n, ALDER))?.status, 200);
    service.kill('SIGUSR2');
    const { err } = await service.logged(
      ({ msg, level }) => msg === 'unexpected error; stopping' && level === 60,
    );
    assert.match(JSON.stringify(err), /planted/);
    assert.equal((await connection.create(2n, ALDER))?.status, 200);
    connection.close();
    assert.equal((await service.ended).code, 1);
    assert.ok(service.log.some(({ msg }) => msg === 'stopped'));
  });

  it('process blocked during the grace period → requests that arrived meanwhile get responses', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    const service = await installation.serve({
      env: PRODUCTION,
      wrap: ([node = '', ...rest]) => [node, '--import', BLOCKS, ...rest],
    });
    const connection = new Connection(service.url, token);
    assert.equal((await connection.create(1n, ALDER))?.status, 200);
    service.kill('SIGTERM');
    await service.wrote(() => service.output.stdout.match(/blocked/) ?? undefined);
    const answer = connection.create(2n, ALDER);
    // The request is sent in the next event-loop iteration.
    await setTimeout(10);
    await writeFile(join(installation.folder, 'asked'), '');
    assert.equal((await answer)?.status, 200);
    connection.close();
    assert.equal((await service.ended).code, 0);
  });

  it('incomplete scrape and silent collector → waits up to a second', async (t) => {
    const silent = createServer((socket) => socket.on('error', () => undefined));
    const port = await listenOnFreePort(silent);
    t.after(() => void silent.close());
    const installation = await newInstallation(t);
    const env = { ...PRODUCTION, OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` };
    const service = await installation.serve({ env });
    await (await fetch(`${service.url}/plants`)).arrayBuffer();
    const scrape = connect(Number(new URL(service.adminUrl).port), '127.0.0.1');
    t.after(() => void scrape.destroy());
    scrape.on('error', () => undefined).write('GET /metrics HTTP/1.1\r\n');
    // Connections are handled in order, so the incomplete request has been read.
    assert.equal((await fetch(`${service.adminUrl}/live`)).status, 200);
    const began = performance.now();
    assert.equal((await service.stop()).code, 0);
    assert.ok(performance.now() - began < 8_000, `it took ${performance.now() - began} ms`);
  });

  for (const engine of engines)
    it(`requests that the stop cuts off → 503 in the log and the traces, on ${engine.name}`, async (t) => {
      const [installation, collector] = [await newInstallation(t), await startCollector(t)];
      const databaseUrl = await engine.freshUrl(t);
      const env = { ...PRODUCTION, DATABASE_URL: databaseUrl, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url };
      const { stdout: token } = await installation.run(['token', 'create', 'alice'], { env });
      const service = await installation.serve({ env });
      const head = `POST /plants HTTP/1.1\r\nHost: plants.test\r\nAuthorization: Bearer ${token.trim()}\r\n`;
      const half = `${head}Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"id":5`;
      const wires = Array.from({ length: 20 }, () => openWire(service.url));
      t.after(() => {
        for (const wire of wires) wire.destroy();
      });
      for (const wire of wires) wire.send(half);
      // Connections are handled in order, so the incomplete requests have been read.
      await (await fetch(`${service.url}/openapi.json`)).arrayBuffer();
      assert.equal((await service.stop()).code, 0);
      const lines = service.log.filter(({ operation }) => operation === 'createPlant');
      const cut = wires.map(() => ({ msg: 'answered', status: 503 }));
      assert.deepEqual(
        lines.map(({ msg, status }) => ({ msg, status })),
        cut,
      );
      const spans = collector.spans().filter(({ name }) => name === 'POST /plants');
      assert.deepEqual(
        spans.map(({ attributes, traceId }) => [attributes['http.response.status_code'], traceId]),
        lines.map(({ traceId }) => [503, traceId]),
      );
    });

  for (const path of ['/ready', '/metrics'])
    it(`${path} is requested after the store is closed → exit code 0`, async (t) => {
      const installation = await newInstallation(t);
      const service = await installation.serve({ env: PRODUCTION });
      const probe = openWire(service.adminUrl);
      t.after(() => probe.destroy());
      probe.send(`GET ${path} HTTP/1.1\r\n`);
      // Connections are handled in order, so the incomplete request has been read.
      assert.equal((await fetch(`${service.adminUrl}/live`)).status, 200);
      service.kill('SIGTERM');
      await until(() => !existsSync(`${installation.file}-wal`));
      probe.send('Host: plants.test\r\n\r\n');
      assert.equal((await endOf(service)).code, 0);
      assert.ok(!service.log.some(({ msg }) => String(msg).startsWith('fatal store error')));
    });

  it('PostgreSQL is silent, and /ready is requested all the time → exit code 0', async (t) => {
    const url = new URL(await postgres.freshUrl(t));
    const proxy = await startTcpProxy(t, Number(url.port));
    url.port = String(proxy.port);
    const installation = await newInstallation(t);
    const env = { ...PRODUCTION, DATABASE_URL: url.href };
    const { stdout: token } = await installation.run(['token', 'create', 'alice'], { env });
    const service = await installation.serve({ env });
    const connection = new Connection(service.url, token.trim());
    t.after(() => connection.close());
    assert.equal((await connection.create(1n, ALDER))?.status, 200);
    const probe = async () => (await fetch(`${service.adminUrl}/ready`)).text();
    // Slow answers make probes open a session each, so that later ones find it idle and wait for its answer.
    void proxy.delay(100, '');
    await Promise.all(Array.from({ length: 9 }, probe));
    void proxy.delay(0, '');
    const stalled = proxy.expect(/create-(new-)?plants/, 'stall');
    const inFlight = connection.create(2n, ALDER);
    await stalled;
    await sendSignal(service, 'SIGTERM');
    while ((await Promise.race([service.ended, setTimeout(100)])) === undefined)
      await probe().catch(() => undefined);
    assert.equal((await inFlight)?.status, 503);
    assert.equal((await service.ended).code, 0);
  });

  it('another process holds the write lock → every write gets 503, exit code 0', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    const service = await installation.serve({ env: PRODUCTION });
    const [first, second] = [new Connection(service.url, token), new Connection(service.url, token)];
    // Records the first use of the token, which is a write too.
    assert.equal((await first.create(0n, ALDER))?.status, 200);
    const held = await holdWrites(installation.databaseUrl);
    t.after(() => held.release());
    const inFlight = first.create(1n, ALDER);
    await until(async () => (await countOfWrites(service, 'in_flight')) === 1);
    const queued = second.create(2n, ALDER);
    await until(async () => (await countOfWrites(service, 'waiting')) === 1);
    service.kill('SIGTERM');
    for (const rejected of await Promise.all([inFlight, queued])) {
      assert.equal(rejected?.status, 503);
      assert.match(rejected.body, /"error":50300.*nothing was changed/);
    }
    assert.equal((await service.ended).code, 0);
  });

  it('first token cannot be created → stops, with the reason in the log', async (t) => {
    const installation = await newInstallation(t);
    assert.equal((await installation.run(['migrate'])).code, 0);
    const db = new DatabaseSync(installation.file);
    db.exec(
      `CREATE TRIGGER no_token BEFORE INSERT ON tokens BEGIN SELECT RAISE(ABORT, 'no more tokens'); END`,
    );
    db.close();
    const service = await installation.serve();
    const { err } = await service.logged(({ level }) => level === 60);
    assert.match(JSON.stringify(err), /no more tokens/);
    const { code, stdout } = await endOf(service);
    assert.equal(code, 1);
    assert.match(stdout, /"msg":"the first token could not be created; stopping"/);
    assert.doesNotMatch(stdout, /plt_/);
  });
});

function assertStopped({ code, signal, stderr }: Ended, { log }: Program): void {
  assert.deepEqual({ code, signal, stderr }, { code: 0, signal: null, stderr: '' });
  assert.deepEqual(
    log.map(({ msg }) => msg),
    ['stopping', 'stopped'],
  );
}

async function countOfWrites(service: Service, state: 'in_flight' | 'waiting'): Promise<number> {
  const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
  return Number(new RegExp(`^plant_store_writes_${state} (\\d+)$`, 'm').exec(metrics)?.[1]);
}

async function sendSignal(service: Service, signal: NodeJS.Signals): Promise<void> {
  service.kill(signal);
  await service.logged(({ msg }) => msg === 'stopping');
}
