import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { MAX_FIELDS } from '../../../src/http/protocol/connection/message-framing.ts';
import { openWire, type Wire } from '../../support/clients/raw-connection.ts';
import { headerOf, type RawAnswer } from '../../support/clients/raw-http.ts';
import { sqlite } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { openFiles } from '../../support/process-resources.ts';
import { newInstallation } from '../../support/program.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';
import { startService, type TestService } from '../../support/service.ts';
import { create, upTo } from '../../support/store-setup.ts';
import { KEPT, type WireCase, wireSections } from './wire-cases.ts';

const cases = wireSections.flatMap((section) => section.cases);

test('wire case → exactly the expected responses and the expected plants', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  for (const { section, cases } of wireSections) {
    await t.test(section, async (t) => {
      for (const wireCase of cases) await t.test(wireCase.title, () => check(service, wireCase));
    });
  }
  await service.close();
});

test('wire case sent in pieces → the same responses', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  for (const wireCase of cases) {
    if (wireCase.isSentWhole || wireCase.sends.length > MAX_SPLIT) continue;
    await t.test(wireCase.title, () => check(service, wireCase, 'split', splitSlowly));
  }
  await service.close();
});

// Node's parser hides its errors after a request with `Upgrade`, until the next headers are complete.
for (const [where, change] of [
  ['behind a request with Upgrade', behindUpgrade],
  ['with Upgrade in its first request', withUpgrade],
] as const)
  test(`wire case ${where} → the same responses`, async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t));
    for (const wireCase of cases) {
      if (MAY_DIFFER.includes(wireCase.title)) continue;
      const changed = change(wireCase);
      if (changed !== undefined) await t.test(wireCase.title, () => check(service, changed, change.name));
    }
    await service.close();
  });

test('requests in pieces on one connection, between those of another → each keeps its bytes', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  const token = await service.token('pieces');
  const [wire, other] = [openWire(service.url), openWire(service.url)];
  t.after(() => {
    for (const one of [wire, other]) one.destroy();
  });
  // The service has read all earlier bytes of both connections when the other one has its response.
  const overwrite = async (): Promise<void> => {
    other.send(`GET /none HTTP/1.1\r\nHost: plants.test\r\nX-Fern: ${'x'.repeat(4_000)}\r\n\r\n`);
    assert.equal((await other.answer())?.status, 404);
  };
  const name = 'Alder'.repeat(1_000);
  const body = `{"id":1,"name":"${name}"}`;
  const list = `GET /plants?limit=1 HTTP/1.1\r\nHost: plants.test\r\nAuthorization: Bearer ${token}\r\n\r\n`;
  const sent =
    `POST /plants HTTP/1.1\r\nHost: plants.test\r\nAuthorization: Bearer ${token}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}${list}${list}`;
  for (const [from, to] of [
    [0, 9],
    [9, 60],
    [60, 300],
    [300, 2_000],
    [2_000, sent.length - 20],
    [sent.length - 20, sent.length],
  ]) {
    wire.send(sent.slice(from, to));
    await overwrite();
  }
  for (const expected of [`{"name":"${name}"}`, `[{"name":"${name}"}]`, `[{"name":"${name}"}]`])
    assert.equal((await wire.answer())?.body.toString(), expected);
  await service.close();
});

test('wire cases: 80 or more, with unique titles', () => {
  assert.ok(cases.length >= 80, `the table has ${cases.length} cases`);
  assert.equal(new Set(cases.map(({ title }) => title)).size, cases.length);
});

test('a naive server, which counts empty lines as requests → fails every smuggling case', async (t) => {
  // Responds to anything that ends in an empty line, and never closes.
  const naive = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      const heads = bytes.toString('latin1').split('\r\n\r\n').length - 1;
      const answer = 'HTTP/1.1 200 OK\r\nX-Request-Id: of-no-use\r\nContent-Length: 0\r\n\r\n';
      socket.write(answer.repeat(heads));
    });
  });
  const url = `http://127.0.0.1:${await listenOnFreePort(naive)}`;
  t.after(() => naive.close());
  const smuggling = cases.filter(
    ({ sends }) => sends.includes('\r\n\r\n') && sends.includes('DELETE /plants/1'),
  );
  assert.ok(smuggling.length >= 80);
  const talks = await Promise.allSettled(smuggling.map((wireCase) => converse(url, wireCase, 'x', 1_000)));
  const notFound = smuggling.filter((_, index) => talks[index]?.status === 'fulfilled');
  assert.deepEqual(
    notFound.map(({ title }) => title),
    [],
  );
});

for (const { title, begun, rest, code } of [
  {
    title: 'too many headers without their end',
    begun: 'X:\r\n'.repeat(MAX_FIELDS - 1),
    rest: 'X:\r\n'.repeat(2),
    code: 43100,
  },
  {
    title: 'header too large',
    begun: `X-Fern: ${'x'.repeat(10_000)}`,
    rest: 'x'.repeat(10_000),
    code: 43100,
  },
  {
    title: 'request line with an unknown method in place of a header',
    begun: '',
    rest: 'PLANT / HTTP/1.1\r\n\r\n',
    code: 40004,
  },
])
  test(`${title}, in several packets → ${code}`, async (t) => {
    const service = await startService(t, await sqlite.freshUrl(t));
    const head = 'GET /openapi.json HTTP/1.1\r\nHost: plants.test\r\n';
    const wire = openWire(service.url);
    t.after(() => wire.destroy());
    wire.send(`${head}\r\n${head}${begun}`);
    // The service has now read all bytes sent with the first request.
    assert.equal((await wire.answer())?.status, 200);
    wire.send(rest);
    const answer = await wire.answer();
    assert.ok(answer !== undefined);
    assert.equal(codeOf(answer), code);
    await service.close();
  });

test('chunk extensions larger than Node allows, below --header-limit → 41300', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), { headerLimit: '65536' });
  const wire = openWire(service.url);
  t.after(() => wire.destroy());
  wire.send(
    `OPTIONS /plants HTTP/1.1\r\n${HOST}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n` +
      `2;${'x'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`,
  );
  const answer = await wire.answer();
  assert.ok(answer !== undefined);
  assert.equal(codeOf(answer), 41300);
  await service.close();
});

test('end of a chunked body anywhere in a slice of the parser → its bytes do not count as trailers', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t), { headerLimit: '1024' });
  const token = await service.token('slices');
  const wire = openWire(service.url);
  t.after(() => wire.destroy());
  const trailers = `X-Fern: ${'x'.repeat(900)}\r\n`;
  const lengths = Array.from({ length: 40 }, (_, index) => 1_000 + index);
  for (const length of lengths) {
    const body = `{"id":${length},"name":"Fern"}`.padEnd(length);
    wire.send(
      `POST /plants HTTP/1.1\r\n${HOST}Authorization: Bearer ${token}\r\nContent-Type: application/json\r\n` +
        `Transfer-Encoding: chunked\r\n\r\n${length.toString(16)}\r\n${body}\r\n0\r\n${length % 2 === 0 ? trailers : ''}\r\n`,
    );
    assert.equal((await wire.answer())?.status, 200, `${length} bytes`);
  }
  await service.close();
});

test('rejected client that never closes its connection → the service closes its socket', async (t) => {
  const installation = await newInstallation(t);
  const service = await installation.serve();
  const before = await openFiles(service);
  const much = 'x'.repeat(500_000);
  const rejected = [
    `CONNECT plants.test:1 HTTP/1.1\r\nHost: plants.test\r\n\r\n${much}`,
    `GET /plants HTTP/9.9\r\n\r\n${much}`,
    `POST /plants HTTP/1.1\r\nHost: a b\r\nContent-Length: ${much.length}\r\n\r\n${much}`,
  ];
  const { hostname, port } = new URL(service.url);
  const clients = rejected.map((bytes) => {
    const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
    socket.on('error', () => undefined);
    socket.write(bytes);
    return socket;
  });
  t.after(() => {
    for (const socket of clients) socket.destroy();
  });
  await Promise.all(clients.map((socket) => once(socket, 'data')));
  await until(async () => (await openFiles(service)) <= before);
  assert.equal((await service.stop()).code, 0);
});

// The write of 100 Continue notices the reset while the bytes of the body still wait.
test('client that expects 100 Continue and resets its connection, malformed body → the service continues', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  const client = connect(Number(new URL(service.url).port), '127.0.0.1');
  await once(client, 'connect');
  client.write(
    `OPTIONS /plants HTTP/1.1\r\nHost: plants.test\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n1;${'x'.repeat(60_000)}`,
  );
  client.resetAndDestroy();
  const wire = openWire(service.url);
  wire.send('OPTIONS /plants HTTP/1.1\r\nHost: plants.test\r\n\r\n');
  assert.equal((await wire.answer())?.status, 204);
  wire.destroy();
  await service.close();
});

test('client that resets its connection after 100 Continue → no warning or error in the log', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  const ofStart = service.logLines.length;
  const client = connect(Number(new URL(service.url).port), '127.0.0.1');
  client.write(
    `OPTIONS /plants HTTP/1.1\r\n${HOST}Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 22\r\n\r\n`,
  );
  await once(client, 'data');
  client.resetAndDestroy();
  await until(() => service.logLines.some((line) => line.includes('client went away')));
  const wire = openWire(service.url);
  wire.send(`OPTIONS /plants HTTP/1.1\r\n${HOST}\r\n`);
  assert.equal((await wire.answer())?.status, 204);
  wire.destroy();
  await service.close();
  assert.deepEqual(
    service.logLines.slice(ofStart).filter((line) => /"level":[4-6]0/.test(line)),
    [],
  );
});

test('rejected client that resets its connection → the service continues', async (t) => {
  const service = await (await newInstallation(t)).serve();
  const { hostname, port } = new URL(service.url);
  for (const bytes of [
    'CONNECT plants.test:1 HTTP/1.1\r\nHost: plants.test\r\n\r\n',
    'GET /plants HTTP/9.9\r\n\r\n',
  ]) {
    for (let time = 0; time < 30; time += 1) {
      const socket = connect({ host: hostname, port: Number(port) });
      socket.write(`${bytes}${'x'.repeat(time * 1_000)}`);
      await once(socket, 'connect');
      if (time % 2 === 0) await once(socket, 'data');
      socket.resetAndDestroy();
    }
  }
  assert.equal((await fetch(`${service.url}/openapi.json`)).status, 200);
  assert.equal((await service.stop()).code, 0);
});

/** Longer cases are not sent in pieces. */
const MAX_SPLIT = 30_000;
const PIECES = 200;

/** Cases at a limit that these requests exceed. */
const MAY_DIFFER = [
  '100 headers are accepted',
  'a line end at the start of the body does not count as the 101st header',
  '16,384 bytes of request line and headers are accepted',
];
const HOST = 'Host: plants.test\r\n';
const UPGRADE = 'Connection: Upgrade\r\nUpgrade: h2c\r\n';

/** Returns a case behind a request with Upgrade; undefined for HEAD, as the helpers expect responses of one kind. */
function behindUpgrade(wireCase: WireCase): WireCase | undefined {
  if (wireCase.sends.startsWith('HEAD ')) return undefined;
  const sends = `GET /none HTTP/1.1\r\n${HOST}${UPGRADE}\r\n${wireCase.sends}`;
  return { ...wireCase, sends, answers: [40401, ...wireCase.answers] };
}

function withUpgrade(wireCase: WireCase): WireCase | undefined {
  return { ...wireCase, sends: wireCase.sends.replace(HOST, HOST + UPGRADE) };
}

type SendAll = (wire: Wire, bytes: string) => Promise<void>;

async function sendWhole(wire: Wire, bytes: string): Promise<void> {
  wire.send(bytes);
}

/** Sends bytes in pieces. The service, in this process, reads each piece separately. */
async function splitSlowly(wire: Wire, bytes: string): Promise<void> {
  const length = Math.ceil(bytes.length / PIECES);
  for (let from = 0; from < bytes.length; from += length) {
    wire.send(bytes.slice(from, from + length));
    await setImmediate();
    await setImmediate();
  }
}

async function check(
  service: TestService,
  wireCase: WireCase,
  prefix = 'wire',
  sendAll: SendAll = sendWhole,
): Promise<void> {
  const { leaves = KEPT } = wireCase;
  const owner = `${prefix}-${cases.findIndex(({ title }) => title === wireCase.title)}`;
  const token = await service.token(owner);
  assert.equal(await service.store.write(create(1n, { owner, name: 'Kept' })), 'created');
  await converse(service.url, wireCase, token, 20_000, sendAll);
  const { json } = await service.store.listPlants(owner, { from: 0n, to: 9n }, upTo(10));
  assert.equal(json, leaves);
}

/** Sends the bytes of a case. Rejects unless the responses and the end of the connection are as expected. */
async function converse(
  url: string,
  wireCase: WireCase,
  token: string,
  withinMs: number,
  sendAll: SendAll = sendWhole,
): Promise<void> {
  const { sends, endsEarly = false, answers, closes, leaves = KEPT } = wireCase;
  const isWhole = sendAll === sendWhole;
  const wire = openWire(url);
  try {
    await sendAll(wire, sends.replaceAll('{token}', token));
    if (endsEarly) wire.end();
    assert.deepEqual(await receive(wire, answers, sends.startsWith('HEAD '), withinMs), answers);
    if (!closes) {
      wire.send(
        `GET /plants HTTP/1.1\r\nHost: plants.test\r\nAuthorization: Bearer ${token}\r\nConnection: close\r\n\r\n`,
      );
      const next = await wire.answer({ withinMs });
      // An error response may precede the last piece of the request, and then closes the connection.
      if (!isWhole && next === undefined && (answers.at(-1) ?? 0) >= 40_000) return;
      assert.equal(next?.status, 200, 'the next request on the connection');
      assert.equal(next?.body.toString(), leaves);
    }
    assert.equal(await wire.answer({ withinMs }), undefined, 'there is another response');
  } finally {
    wire.destroy();
  }
}

/** Receives the expected number of responses, or fewer if the connection closes, in the notation of the table. */
async function receive(
  wire: Wire,
  expected: readonly number[],
  toHead: boolean,
  withinMs: number,
): Promise<number[]> {
  const received: number[] = [];
  while (received.length < expected.length) {
    const answer = await wire.answer({ toHead, withinMs });
    if (answer === undefined) break;
    received.push(...answer.interim, toHead ? codeToHead(answer, expected) : codeOf(answer));
  }
  return received;
}

/** Maps the status of a HEAD response, which has no error code in its body, to the expected code. */
function codeToHead({ status }: RawAnswer, expected: readonly number[]): number {
  return expected.find((code) => code === status || Math.floor(code / 100) === status) ?? status;
}

function codeOf({ status, headers, body }: RawAnswer): number {
  assert.match(headerOf(headers, 'x-request-id') ?? '', /^[\w-]{8,}$/);
  if (status < 400) return status;
  assert.equal(headerOf(headers, 'content-type'), 'application/json');
  const { error, message }: { error?: unknown; message?: unknown } = JSON.parse(body.toString());
  assert.ok(typeof error === 'number' && typeof message === 'string' && message !== '');
  assert.equal(Math.floor(error / 100), status);
  return error;
}
