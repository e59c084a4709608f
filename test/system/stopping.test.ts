import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { fillStore } from '../long/long-list.ts';
import { Connection } from '../support/clients/keep-alive-client.ts';
import { damage } from '../support/faults/damaged-file.ts';
import { endOf, newInstallation, type Service, TOGETHER } from '../support/program.ts';
import { listenOnFreePort } from '../support/servers/free-port.ts';
import { bearer } from '../support/service.ts';

const PRODUCTION = { NODE_ENV: 'production' };
const ALDER = { name: 'Alder', tag: null };

/** Long enough for all that a test does in it, on a busy machine too. */
const PAUSE_MS = 3_000;
const PAUSE = ['--stop-delay', String(PAUSE_MS)];

/** Has a service stand still soon after it was told to stop: for a second, and until there is a file `asked`. */
const STANDS_STILL = `data:text/javascript,${encodeURIComponent(
  `import { existsSync, writeSync } from 'node:fs';
   const never = new Int32Array(new SharedArrayBuffer(4));
   const standStill = () => {
     writeSync(1, 'standing still');
     const until = performance.now() + 1_000;
     while (performance.now() < until || !existsSync('asked')) Atomics.wait(never, 0, 0, 20);
   };
   // Behind what has come, and before the timers that are due by then.
   process.on('SIGTERM', () => setTimeout(setImmediate, 50, standStill));`,
)}`;

describe('a stop with a pause', TOGETHER, () => {
  it('says first that the service is not ready, and goes on serving, new connections too', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    const service = await installation.serve({ env: PRODUCTION, flags: PAUSE });
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
    const signalled = performance.now();
    await tell(service, 'SIGTERM');
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

  it('ends with 1 when the store breaks in it', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    await fillStore(installation.databaseUrl, 'alice', 50_000, 100);
    const service = await installation.serve({ env: PRODUCTION, flags: PAUSE });
    await tell(service, 'SIGTERM');
    await damage(installation.file);
    await (await fetch(`${service.url}/plants`, { headers: bearer(token) })).text().catch(() => undefined);
    assert.equal((await service.ended).code, 1);
    assert.ok(service.log.some(({ msg }) => String(msg).startsWith('the store cannot be trusted any more')));
  });
});

// Most of them wait for most of their time.
describe('a stop', { concurrency: 3 }, () => {
  it('is taken while the service starts', async (t) => {
    const installation = await newInstallation(t);
    const silent = createServer();
    const port = await listenOnFreePort(silent);
    const env = { ...PRODUCTION, DATABASE_URL: `postgres://u@127.0.0.1:${port}/plants` };
    const program = installation.start(['serve', '--port', '0', '--admin-port', '0'], { env });
    const [socket] = await once(silent, 'connection');
    program.kill('SIGTERM');
    await program.logged(({ msg }) => msg === 'stopping');
    socket.destroy();
    silent.close();
    const { code, signal, stderr } = await endOf(program);
    assert.deepEqual({ code, signal }, { code: 1, signal: null });
    assert.match(stderr, /^plant-store: /);
    assert.ok(program.log.every(({ msg }) => msg !== 'serving'));
  });

  it('follows a rejection that nobody handles: it is logged, what is in flight is finished, exit code 1', async (t) => {
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
    const { err } = await service.logged(({ msg, level }) => msg === 'unexpected; stopping' && level === 60);
    assert.match(JSON.stringify(err), /planted/);
    assert.equal((await connection.create(2n, ALDER))?.status, 200);
    connection.close();
    assert.equal((await service.ended).code, 1);
    assert.ok(service.log.some(({ msg }) => msg === 'stopped'));
  });

  it('answers what came while the process stood still for as long as clients are asked to go elsewhere', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    const service = await installation.serve({
      env: PRODUCTION,
      wrap: ([node = '', ...rest]) => [node, '--import', STANDS_STILL, ...rest],
    });
    const connection = new Connection(service.url, token);
    assert.equal((await connection.create(1n, ALDER))?.status, 200);
    service.kill('SIGTERM');
    await service.wrote(() => service.output.stdout.match(/standing still/) ?? undefined);
    const answer = connection.create(2n, ALDER);
    // It leaves in the next turn of the event loop.
    await setTimeout(10);
    await writeFile(join(installation.folder, 'asked'), '');
    assert.equal((await answer)?.status, 200);
    connection.close();
    assert.equal((await service.ended).code, 0);
  });

  it('waits a second at most for a scrape that is never asked whole and a collector that never answers', async (t) => {
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
    // Taken in turn, so that what came before it has been read as well.
    assert.equal((await fetch(`${service.adminUrl}/live`)).status, 200);
    const began = performance.now();
    assert.equal((await service.stop()).code, 0);
    assert.ok(performance.now() - began < 8_000, `it took ${performance.now() - began} ms`);
  });

  it('follows a first token that cannot be made, with why in the log', async (t) => {
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
    assert.match(stdout, /"msg":"the first token could not be made; stopping"/);
    assert.doesNotMatch(stdout, /plt_/);
  });
});

async function tell(service: Service, signal: NodeJS.Signals): Promise<void> {
  service.kill(signal);
  await service.logged(({ msg }) => msg === 'stopping');
}
