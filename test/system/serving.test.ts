import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get } from 'node:http';
import { connect, type Socket } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { describe, it } from 'node:test';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { DRAIN_MS } from '../../src/server.ts';
import { fillStore } from '../long/long-list.ts';
import { Connection } from '../support/clients/keep-alive-client.ts';
import { renderRequest } from '../support/clients/raw-http.ts';
import { until } from '../support/patience.ts';
import { isOfTestSetup, newInstallation, type Service } from '../support/program.ts';
import { bearer } from '../support/service.ts';

const PRODUCTION = { NODE_ENV: 'production' };
const ALDER = { name: 'Black alder', tag: 'Alnus glutinosa' };

// Concurrent, since one test mostly waits.
describe('SIGTERM and SIGINT', { concurrency: 3 }, () => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    it(`${signal} under load → requests in flight get responses, and acknowledged writes are stored`, async (t) => {
      const installation = await newInstallation(t);
      const token = await installation.token('alice');
      const service = await installation.serve({ env: PRODUCTION });
      const load = startCreating(service, token);
      await load.reaches(500);
      // Requests of this event-loop iteration are sent at its end, so the signal must follow in the next one.
      await setImmediate();
      const signalled = performance.now();
      const { code } = await service.stop(signal);
      const { acknowledged, unanswered } = await load.ended;
      assert.equal(code, 0);
      const lost = unanswered.filter(({ sentAt }) => sentAt < signalled);
      assert.deepEqual(lost, [], 'requests sent before the signal got no response');
      const stored = storedIds(installation.file);
      assert.deepEqual(
        acknowledged.filter((id) => !stored.has(id)),
        [],
      );
    });
  }

  it('request half received → finished with `Connection: close`; new connections are rejected', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION });
    const { socket, finish } = await sendHalf(service, token);
    service.kill('SIGTERM');
    await service.logged(({ msg }) => msg === 'stopping');
    // The listener closes soon after the log line.
    await until(() =>
      fetch(`${service.url}/plants`).then(
        async (early) => {
          assert.equal(early.headers.get('connection'), 'close');
          await early.arrayBuffer();
          return false;
        },
        (error: Error) => /ECONNREFUSED/.test(String(error.cause)),
      ),
    );
    const answer = await finish();
    assert.match(answer, /^HTTP\/1\.1 200 OK\r\n/);
    assert.match(answer, /\r\nconnection: close\r\n/i);
    assert.ok(socket.destroyed);
    assert.equal((await service.ended).code, 0);
    assert.deepEqual(storedIds(installation.file), new Set([7n]));
  });

  it('same signal twice at once, as under npm → graceful stop', async (t) => {
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

  it('second signal later → immediate exit with code 1', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION });
    for (let guess = 0; guess < 3; guess += 1)
      await (await fetch(`${service.url}/plants`, { headers: bearer(`guess-${guess}`) })).arrayBuffer();
    const { socket } = await sendHalf(service, token);
    socket.on('error', () => undefined);
    service.kill('SIGINT');
    await service.logged(({ msg }) => msg === 'stopping');
    // Only the time between the signals distinguishes the two cases.
    await setTimeout(600);
    assert.equal((await service.stop('SIGINT')).code, 1);
    const late = service.log.find(({ msg }) => String(msg).startsWith('the stop took too long'));
    assert.equal(late, undefined, 'it did not wait for its time to be over');
    assert.equal(service.log.find(({ audit }) => audit === 'tokensRefused')?.more, 2);
  });

  it('client that does not read → shutdown is not delayed', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    await fillStore(installation.databaseUrl, 'alice', 100_000, 400);
    const service = await installation.serve({ env: PRODUCTION });
    const reading = get(`${service.url}/plants`, { agent: false, headers: bearer(token) });
    const [list] = await once(reading, 'response');
    list.on('error', () => undefined);
    // A shutdown that exceeds its limit exits with 1.
    assert.equal((await service.stop()).code, 0);
  });

  it('silent connections on either port → shutdown is not delayed', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({ env: PRODUCTION });
    for (const url of [service.url, service.adminUrl]) await openConnection(url);
    // The response shows that the service has accepted the earlier connections.
    await (await fetch(`${service.url}/openapi.json`)).arrayBuffer();
    await (await fetch(`${service.adminUrl}/live`)).arrayBuffer();
    const signalled = performance.now();
    assert.equal((await service.stop()).code, 0);
    assert.ok(performance.now() - signalled < DRAIN_MS, 'the shutdown waited for them');
  });
});

describe('client disconnects', () => {
  it('right after its create, during a batch → other clients are not affected', async (t) => {
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
      service.log.filter((line) => Number(line.level) > 30 && !isOfTestSetup(line)),
      [],
    );
  });
});

interface Load {
  /** Resolves when this number of creates is acknowledged. */
  reaches(count: number): Promise<void>;
  /** Resolves when the service has exited. */
  readonly ended: Promise<{
    readonly acknowledged: readonly bigint[];
    readonly unanswered: readonly { readonly id: bigint; readonly sentAt: number }[];
  }>;
}

/** Creates plants over 32 connections, one request at a time on each, until the service exits. */
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

/** Reads from a socket until it closes. */
async function readAll(socket: Socket): Promise<string> {
  let text = '';
  socket.setEncoding('latin1').on('data', (data: string) => {
    text += data;
  });
  await once(socket, 'close');
  return text;
}

/** Sends a part of the creation of plant 7. `finish` sends the rest and resolves to the response. */
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
  // The service sent 100 Continue, so it is processing the request.
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
