import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { get } from 'node:http';
import { connect, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { loadConfig } from '../src/config.ts';
import { logTo } from '../src/log.ts';
import { startServer } from '../src/server.ts';
import { Connection } from './connection.ts';
import { engines, freshFolder, type TestEngine } from './engines.ts';
import { fillStore } from './long-list.ts';
import { type Installation, type LogLine, newInstallation, type Service, TOGETHER } from './program.ts';
import { renderRequest } from './raw-http.ts';
import { bearer } from './service.ts';

const TOKENS = /plt_[0-9A-Za-z]{49}/g;
const PRODUCTION = { NODE_ENV: 'production' };
const ALDER = { name: 'Black alder', tag: 'Alnus glutinosa' };

/** How long a stop waits for requests that do not finish (src/server.ts). */
const DRAIN_MS = 7_500;

const hasIpv6 = Object.values(networkInterfaces()).some((all) =>
  all?.some(({ address }) => address === '::1'),
);

it('lets go of the store when the service cannot be wired to it', async () => {
  const file = join(await freshFolder(), 'plants.db');
  const config = { ...loadConfig({ databaseUrl: `sqlite:${file}` }, {}), trustProxy: 'no address' };
  const serviceLog = logTo({ write: () => undefined }, 'info');
  await assert.rejects(startServer({ config, serviceLog, onFatal: assert.fail }), /invalid IP address/);
  // SQLite removes them with the last connection.
  assert.deepEqual([existsSync(`${file}-wal`), existsSync(`${file}-shm`)], [false, false]);
});

describe('the first start', TOGETHER, () => {
  for (const flags of [
    [],
    ['--base-path', '/v1'],
    ['--host', '0.0.0.0'],
    ...(hasIpv6 ? [['--host', '::1']] : []),
  ]) {
    it(`prints one token and lines for curl that work as they are (${flags.join(' ') || 'defaults'})`, async (t) => {
      const installation = await newInstallation(t);
      const service = await installation.serve({ flags });
      const [create = '', list = '', remove = '', ...others] = await curlLines(service);
      assert.deepEqual(others, []);
      assert.equal(new Set(service.output.stdout.match(TOKENS)).size, 1);
      assert.match(service.output.stdout, /"msg":"serving".*This store is new/s);
      assert.equal(await runLine(create), '{"name":"Black alder","tag":"Alnus glutinosa"}');
      assert.equal(await runLine(list), '[{"name":"Black alder","tag":"Alnus glutinosa"}]');
      assert.equal(await runLine(remove), '');
      assert.equal(await runLine(list), '[]');
    });
  }

  it('makes a token that the list shows; the second start makes none', async (t) => {
    const installation = await newInstallation(t);
    const first = await installation.serve();
    await curlLines(first);
    await first.stop();
    const { stdout: tokens } = await installation.run(['token', 'list']);
    assert.match(tokens, /default +valid +plants:read,plants:write .*made by the first start\n$/);
    await printsNoToken(installation, await installation.serve());
  });

  for (const engine of engines) {
    it(`prints none in production on ${engine.name}, and says how to make one`, async (t) => {
      await saysHowToMakeOne(t, engine, PRODUCTION);
    });
  }

  it('prints none on a store that is shared, wherever it runs', async (t) => {
    const shared = engines.filter(({ name }) => name !== 'sqlite');
    assert.equal(shared.length, 1);
    for (const engine of shared) await saysHowToMakeOne(t, engine, {});
  });

  it('says nothing of tokens when there is one', async (t) => {
    const installation = await newInstallation(t);
    await installation.token();
    const service = await installation.serve({ env: PRODUCTION });
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
    await service.stop();
    assert.ok(!service.log.some(isWithoutTokens));
    assert.ok(!service.output.stdout.includes('Server listening'), 'that is said once');
  });

  it('prints none when there is a token, even a revoked one', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('alice');
    const [{ id } = { id: '' }] = await listTokens(installation);
    await installation.run(['token', 'revoke', id]);
    await printsNoToken(installation, await installation.serve());
  });
});

// One of them waits for most of its time, and takes nothing from the others.
describe('SIGTERM and SIGINT', { concurrency: 3 }, () => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    it(`${signal} under load: what is in flight is answered, and what was acknowledged is in the store`, async (t) => {
      const installation = await newInstallation(t);
      const token = await installation.token('alice');
      const service = await installation.serve({ env: PRODUCTION });
      const load = startCreating(service, token);
      await load.reaches(500);
      const signalled = performance.now();
      const { code } = await service.stop(signal);
      const { acknowledged, unanswered } = await load.ended;
      assert.equal(code, 0);
      const lost = unanswered.filter(({ sentAt }) => sentAt < signalled);
      assert.deepEqual(lost, [], 'requests of before the signal got no answer');
      const stored = storedIds(installation.file);
      assert.deepEqual(
        acknowledged.filter((id) => !stored.has(id)),
        [],
      );
    });
  }

  it('finish a request that is half sent, tell its client to close, and refuse new connections', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION });
    const { socket, finish } = await sendHalf(service, token);
    service.kill('SIGTERM');
    await service.logged(({ msg }) => msg === 'stopping');
    await assert.rejects(fetch(`${service.url}/plants`), (error: Error) =>
      /ECONNREFUSED/.test(String(error.cause)),
    );
    const answer = await finish();
    assert.match(answer, /^HTTP\/1\.1 200 OK\r\n/);
    assert.match(answer, /\r\nconnection: close\r\n/i);
    assert.ok(socket.destroyed);
    assert.equal((await service.ended).code, 0);
    assert.deepEqual(storedIds(installation.file), new Set([7n]));
  });

  it('two at once, as npm passes them on, still stop in order', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION });
    const { finish } = await sendHalf(service, token);
    service.kill('SIGINT');
    service.kill('SIGTERM');
    await service.logged(({ msg }) => msg === 'stopping');
    assert.match(await finish(), /^HTTP\/1\.1 200 OK\r\n/);
    assert.equal((await service.ended).code, 0);
  });

  it('again after that mean hurry: it ends at once, with exit code 1', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION });
    const { socket } = await sendHalf(service, token);
    socket.on('error', () => undefined);
    service.kill('SIGINT');
    await service.logged(({ msg }) => msg === 'stopping');
    // What tells the two apart is time alone.
    await setTimeout(600);
    assert.equal((await service.stop('SIGINT')).code, 1);
    const late = service.log.find(({ msg }) => String(msg).startsWith('requests did not finish in time'));
    assert.equal(late, undefined, 'it did not wait for its time to be over');
  });

  it('are not held up by a reader that does not read', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    await fillStore(installation.databaseUrl, 'alice', 100_000, 400);
    const service = await installation.serve({ env: PRODUCTION });
    const reading = get(`${service.url}/plants`, { agent: false, headers: bearer(token) });
    const [list] = await once(reading, 'response');
    list.on('error', () => undefined);
    // What takes too long ends with 1.
    assert.equal((await service.stop()).code, 0);
  });

  it('are not held up by connections that say nothing, on either port', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({ env: PRODUCTION });
    for (const url of [service.url, service.adminUrl]) await openConnection(url);
    // Its answer shows that the service has taken up the connections before it.
    await (await fetch(`${service.url}/openapi.json`)).arrayBuffer();
    await (await fetch(`${service.adminUrl}/live`)).arrayBuffer();
    const signalled = performance.now();
    assert.equal((await service.stop()).code, 0);
    assert.ok(performance.now() - signalled < DRAIN_MS, 'they were waited for');
  });
});

describe('the log', TOGETHER, () => {
  it('has a JSON line with time, level and what was answered for every request', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION });
    const headers = bearer(token);
    const json = { ...headers, 'content-type': 'application/json' };
    const requests: readonly {
      path: string;
      init: RequestInit;
      status: number;
      operation: string;
      owner?: string;
    }[] = [
      {
        path: '/plants',
        init: { method: 'POST', headers: json, body: '{"id":1,"name":"Alder"}' },
        status: 200,
        operation: 'createPlant',
        owner: 'alice',
      },
      {
        path: '/plants',
        init: { method: 'POST', headers: json, body: '{' },
        status: 400,
        operation: 'createPlant',
        owner: 'alice',
      },
      { path: '/plants?limit=1', init: { headers }, status: 200, operation: 'listPlants', owner: 'alice' },
      { path: '/plants', init: {}, status: 401, operation: 'listPlants' },
      {
        path: '/plants/1',
        init: { method: 'DELETE', headers },
        status: 204,
        operation: 'deletePlant',
        owner: 'alice',
      },
      {
        path: '/plants/1',
        init: { method: 'DELETE', headers },
        status: 404,
        operation: 'deletePlant',
        owner: 'alice',
      },
      { path: '/openapi.json', init: {}, status: 200, operation: 'openapi' },
      { path: '/docs', init: {}, status: 200, operation: 'docs' },
      { path: '/nothing', init: {}, status: 404, operation: 'none' },
    ];
    for (const { path, init, status, operation, owner } of requests) {
      const response = await fetch(service.url + path, init);
      await response.arrayBuffer();
      assert.equal(response.status, status);
      const requestId = response.headers.get('x-request-id');
      const line = await service.logged((one) => one.requestId === requestId && one.msg === 'answered');
      const { level, time, ms, ...rest } = line;
      const expected = {
        requestId,
        operation,
        status,
        ...(owner === undefined ? {} : { owner }),
        msg: 'answered',
      };
      assert.deepEqual(rest, expected);
      assert.equal(level, 30);
      assert.ok(typeof ms === 'number' && ms >= 0 && ms < 60_000);
      assert.ok(Math.abs(Date.now() - Date.parse(String(time))) < 60_000);
    }
    await service.stop();
    for (const line of service.output.stdout.trimEnd().split('\n')) {
      const parsed: Record<string, unknown> = JSON.parse(line);
      assert.match(String(parsed.time), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      assert.equal(typeof parsed.level, 'number');
    }
    assert.equal(service.output.stderr, '');
  });
});

describe('the admin listener', () => {
  it('answers /live, /ready and /metrics, which are nothing on the public port', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({ env: PRODUCTION });
    assert.notEqual(service.adminUrl, service.url);
    for (const path of ['/live', '/ready', '/metrics']) {
      const inside = await fetch(service.adminUrl + path);
      assert.equal(inside.status, 200);
      assert.notEqual(await inside.text(), '');
      const outside = await fetch(service.url + path);
      assert.equal(outside.status, 404);
      const body: unknown = await outside.json();
      assert.equal(Reflect.get(Object(body), 'error'), 40401);
    }
    for (const path of ['/plants', '/openapi.json', '/']) {
      const response = await fetch(service.adminUrl + path);
      assert.equal(response.status, 404);
      await response.arrayBuffer();
    }
  });

  it('counts the answers in its metrics', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION });
    const connection = new Connection(service.url, token);
    for (let id = 1n; id <= 3n; id += 1n) await connection.create(id, ALDER);
    connection.close();
    await service.wrote(() => service.log.filter(({ operation }) => operation === 'createPlant')[2]);
    const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
    assert.match(metrics, /_duration_seconds_count\{operation="createPlant",status="200"\} 3\n/);
  });
});

describe('a client that goes away', () => {
  it('right behind its create, in the middle of a batch, harms no other', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION });
    const ids = Array.from({ length: 64 }, (_, number) => BigInt(number));
    const sockets = await Promise.all(ids.map(() => openConnection(service.url)));
    const answers = sockets.map((socket, number) => {
      const isLeaving = number % 2 === 1;
      const answer = readAll(socket);
      socket.write(creating(BigInt(number), token), () => {
        if (isLeaving) socket.destroy();
      });
      return isLeaving ? undefined : answer;
    });
    const stayed = (await Promise.all(answers)).filter((answer) => answer !== undefined);
    assert.equal(stayed.length, 32);
    for (const answer of stayed) assert.match(answer, /^HTTP\/1\.1 200 OK\r\n/);

    const connection = new Connection(service.url, token);
    assert.equal((await connection.create(1_000n, ALDER))?.status, 200);
    connection.close();
    assert.equal((await service.stop()).code, 0);
    const stored = storedIds(installation.file);
    for (const id of ids) assert.ok(id % 2n === 1n || stored.has(id), `plant ${id} is missing`);
    assert.ok([...stored].every((id) => id < 64n || id === 1_000n));
    assert.deepEqual(
      service.log.filter(({ level }) => Number(level) > 30),
      [],
    );
  });
});

/** The lines for curl that the service prints behind its log, once they are all there. */
async function curlLines(service: Service): Promise<readonly string[]> {
  const printed = await service.wrote(() => {
    const lines = service.output.stdout.match(/^ +curl .*\n/gm) ?? [];
    return lines.length >= 3 ? lines : undefined;
  });
  return printed.map((line) => line.trim());
}

async function runLine(line: string): Promise<string> {
  const run = promisify(execFile);
  await run('bash', ['-c', 'command -v curl']).catch(() =>
    assert.fail('curl must be installed for this test'),
  );
  return (await run('bash', ['-c', line])).stdout;
}

function isWithoutTokens({ msg }: LogLine): boolean {
  return String(msg).startsWith('no tokens yet');
}

async function saysHowToMakeOne(
  t: TestContext,
  engine: TestEngine,
  env: Readonly<Record<string, string>>,
): Promise<void> {
  const installation = await newInstallation(t);
  const store = { ...env, DATABASE_URL: await engine.freshUrl(t) };
  const service = await installation.serve({ env: store });
  const { level } = await service.logged(isWithoutTokens);
  assert.equal(level, 40);
  const { stdout } = await service.stop();
  assert.doesNotMatch(stdout, /plt_|curl/);
  const listed = await installation.run(['token', 'list', '--json'], { env: store });
  assert.deepEqual(JSON.parse(listed.stdout), []);
}

/** Asserts that a start prints no token and makes none. */
async function printsNoToken(installation: Installation, service: Service): Promise<void> {
  // The command takes far longer than a service that makes a token behind its start.
  const before = await listTokens(installation);
  const { code, stdout, stderr } = await service.stop();
  assert.equal(code, 0);
  assert.doesNotMatch(stdout + stderr, /plt_|curl/);
  assert.deepEqual(await listTokens(installation), before);
}

async function listTokens(installation: Installation): Promise<readonly { readonly id: string }[]> {
  return JSON.parse((await installation.run(['token', 'list', '--json'])).stdout);
}

interface Load {
  /** Resolves when so many creates are acknowledged. */
  reaches(count: number): Promise<void>;
  /** Resolves when the service is gone. */
  readonly ended: Promise<{
    readonly acknowledged: readonly bigint[];
    readonly unanswered: readonly { readonly id: bigint; readonly sentAt: number }[];
  }>;
}

/** Creates plants over 32 connections, each with one request at a time, until the service is gone. */
function startCreating(service: Service, token: string): Load {
  const acknowledged: bigint[] = [];
  const unanswered: { id: bigint; sentAt: number }[] = [];
  const reached = Promise.withResolvers<void>();
  let wanted = Number.POSITIVE_INFINITY;
  let nextId = 0n;

  async function create(connection: Connection): Promise<void> {
    for (;;) {
      nextId += 1n;
      const [id, sentAt] = [nextId, performance.now()];
      const answer = await connection.create(id, ALDER);
      if (answer === undefined) {
        unanswered.push({ id, sentAt });
        return connection.close();
      }
      assert.equal(answer.status, 200);
      acknowledged.push(id);
      if (acknowledged.length >= wanted) reached.resolve();
    }
  }

  const connections = Array.from({ length: 32 }, () => create(new Connection(service.url, token)));
  return {
    reaches: (count) => {
      wanted = count;
      return Promise.race([reached.promise, Promise.all(connections).then(() => undefined)]);
    },
    ended: Promise.all(connections).then(() => ({ acknowledged, unanswered })),
  };
}

function storedIds(file: string): Set<bigint> {
  using db = new DatabaseSync(file, { readOnly: true });
  const select = db.prepare('SELECT id FROM plants');
  select.setReadBigInts(true);
  return new Set(select.all().map(({ id }) => BigInt(String(id))));
}

async function openConnection(url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  return socket;
}

function creating(id: bigint, token: string): Buffer {
  const headers = Object.entries({ ...bearer(token), 'content-type': 'application/json' });
  return renderRequest({ method: 'POST', path: '/plants', headers, body: `{"id":${id},"name":"Alder"}` });
}

/** All that arrives on a socket until it closes. */
async function readAll(socket: Socket): Promise<string> {
  let text = '';
  socket.setEncoding('latin1').on('data', (data: string) => {
    text += data;
  });
  await once(socket, 'close');
  return text;
}

/** A create of the plant 7 that the service has begun to read; `finish` sends the rest and resolves to the answer. */
async function sendHalf(
  service: Service,
  token: string,
): Promise<{ socket: Socket; finish: () => Promise<string> }> {
  const socket = await openConnection(service.url);
  const headers = Object.entries({
    ...bearer(token),
    'content-type': 'application/json',
    connection: 'keep-alive',
    expect: '100-continue',
  });
  const body = '{"id":7,"name":"Alder"}';
  const request = renderRequest({ method: 'POST', path: '/plants', headers, body });
  // The service asks for the body: it has the request in hand.
  socket.write(request.subarray(0, -body.length));
  const [interim] = await once(socket.setEncoding('latin1'), 'data');
  assert.match(String(interim), /^HTTP\/1\.1 100 Continue\r\n/);
  socket.write(body.slice(0, 5));
  return {
    socket,
    finish: () => {
      const answer = readAll(socket);
      socket.write(body.slice(5));
      return answer;
    },
  };
}
