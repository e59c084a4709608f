import { loadConfig } from '../../../src/config.ts';
import { UNCOUNTED_INPUT_BYTES } from '../../../src/http/protocol/connection/socket-input.ts';
import { mintSecret } from '../../../src/token.ts';
import { costlyBodies } from '../../support/data/costly-bodies.ts';
import { MEBIBYTE } from '../../support/process-resources.ts';
import type { Attack, Script, Step } from './attack.ts';

const HOST = 'Host: plants.test\r\n';
const TOKEN = `${HOST}Authorization: Bearer {token}\r\n`;
const JSON_TYPE = 'Content-Type: application/json\r\n';

/** Well-formed, so that the service looks it up. */
const UNKNOWN_TOKEN = mintSecret();

/** 27 bytes: the smallest valid request. */
const NOTHING_THERE = 'GET /p HTTP/1.1\r\nHost: p\r\n\r\n';
const DOCS = `GET /docs/scalar.js HTTP/1.1\r\n${HOST}\r\n`;
const METRICS = `GET /metrics HTTP/1.1\r\n${HOST}\r\n`;

/** 8 MB as one page. */
const LONG = { plants: 20_000, nameLength: 400 };
const MILLION = { plants: 1_000_000, nameLength: 20 };
const SHORTER = { plants: 100_000, nameLength: 20 };

function get(target: string, headers = TOKEN): string {
  return `GET ${target} HTTP/1.1\r\n${headers}\r\n`;
}

function post(headers: string, body: string): string {
  return `POST /plants HTTP/1.1\r\n${headers}${JSON_TYPE}Content-Length: ${body.length}\r\n\r\n${body}`;
}

/** `{n}` is three characters long, its replacement nine. */
const CREATE = post(TOKEN, '{"id":1{n},"name":"Fern"}      ').replace('      ', '');

/** Headers with different names and values of so many characters. */
function headers(count: number, length: number): string {
  return Array.from({ length: count }, (_, index) => `H${index}: ${'x'.repeat(length)}\r\n`).join('');
}

const LARGEST_HEAD = get('/plants', HOST + headers(95, 140));

const UNFINISHED_HEAD = LARGEST_HEAD.slice(0, -2);

/** A head without its end, of which one byte counts for the memory of input. Its two lines count 128 bytes more each. */
const SMALLEST_COUNTED = `GET / HTTP/1.1\r\n${HOST}X: `.padEnd(UNCOUNTED_INPUT_BYTES - 255, 'x');

/** Sends once, then stays silent. */
function once(...steps: readonly Step[]): readonly Script[] {
  return [{ steps }];
}

/** Sends the request again after each response. */
function inALoop(request: string): Script {
  return { steps: [{ send: request }, { answers: 1 }], repeats: 'on the connection' };
}

function onNewConnections(...steps: readonly Step[]): readonly Script[] {
  return [{ steps, repeats: 'on a new connection' }];
}

const MANY = 20_000;
const defaults = loadConfig({}, {});
const MARGIN_MS = 5_000;
const DEFAULT_WRITE_TIMEOUT = defaults.writeTimeout + MARGIN_MS;

/** Node.js accepts one connection per event-loop iteration, so that a burst of busy ones delays the next. */
const AFTER_A_BURST = { longestMs: 5_000 };

/** Timeouts of the short forms. */
const SHORT_WRITE_TIMEOUT = { WRITE_TIMEOUT: '1000' };
/** Longer than a busy machine delays a request of another client. */
const SHORT_RECEIVE_TIMEOUTS = { HEADER_TIMEOUT: '5000', REQUEST_TIMEOUT: '5000' };
/** The longest of these timeouts, and the margin. */
const CLOSED_SOON_MS = 5_000 + MARGIN_MS;

const pipelining: readonly Attack[] = [
  {
    name: 'pipelined-20',
    about: '20,000 pipelined requests each, without a token',
    guards: 'queued requests of a connection: p99, memory',
    connections: 20,
    sends: once({ send: NOTHING_THERE, times: MANY }),
    reads: 'all',
    seconds: 20,
    bounds: {},
    bare: true,
  },
  {
    name: 'pipelined-20-unread',
    about: 'the same; the answers are not read, and still run when the attack ends',
    guards: 'queued requests of a connection: p99, memory',
    connections: 20,
    sends: once({ send: NOTHING_THERE, times: MANY }),
    reads: 'nothing',
    seconds: 40,
    bounds: {},
    bare: true,
  },
  {
    name: 'pipelined-100',
    about: 'the same from 100 connections; the answers are read',
    guards: 'queued requests of a connection: p99, memory',
    connections: 100,
    sends: once({ send: NOTHING_THERE, times: MANY }),
    reads: 'all',
    seconds: 30,
    bounds: {},
    bare: true,
  },
  {
    name: 'pipelined-100-unread',
    about: 'the same from 100 connections; the answers are not read, and still run when the attack ends',
    guards: 'queued requests of a connection: p99, memory',
    connections: 100,
    sends: once({ send: NOTHING_THERE, times: MANY }),
    reads: 'nothing',
    seconds: 40,
    bounds: {},
    bare: true,
    short: { env: SHORT_WRITE_TIMEOUT, seconds: 8 },
  },
  {
    name: 'pipelined-behind-docs',
    about: '20,000 pipelined requests each behind 8 long answers that are not read',
    guards:
      'queued requests of a connection: p99, memory; the write timeout: closed; bytes queued for slow readers: memory',
    connections: 100,
    sends: once({ send: DOCS, times: 8 }, { send: NOTHING_THERE, times: MANY }),
    reads: 'nothing',
    seconds: 40,
    bounds: { closedMs: DEFAULT_WRITE_TIMEOUT },
    bare: true,
    stock: LONG,
  },
  {
    name: 'pipelined-lists',
    about: '20,000 pipelined lists each, with a token',
    guards: 'queued requests of a connection: p99, memory',
    connections: 20,
    sends: once({ send: get('/plants?limit=1'), times: MANY }),
    reads: 'all',
    seconds: 20,
    bounds: {},
    bothEngines: true,
    bare: true,
  },
  {
    name: 'pipelined-creates',
    about: '5,000 pipelined creations each, with a token',
    guards: 'queued requests of a connection: p99, memory',
    connections: 20,
    sends: once({ send: CREATE, times: 5_000 }),
    reads: 'all',
    seconds: 20,
    bounds: {},
    bothEngines: true,
  },
  {
    name: 'pipelined-fairly',
    about: '100 pipelined lists each, which all get their answers',
    guards: 'a queue of at least 100 requests: answers',
    connections: 50,
    sends: once({ send: get('/plants?limit=1'), times: 100 }, { answers: 100 }, { leave: 'FIN' }),
    reads: 'all',
    seconds: 20,
    bounds: { answersEach: 100, statuses: [200] },
    bothEngines: true,
    bare: true,
    short: {},
  },
];

// With `Connection: close`, a rejected list does not leave an idle connection.
const LAST = `${TOKEN}Connection: close\r\n`;

const unreadTargets = [
  { name: 'list', request: get('/plants', LAST), stock: LONG },
  { name: 'page', request: get('/plants?limit=20000', LAST), stock: LONG },
  { name: 'docs', request: DOCS.repeat(8), stock: LONG },
] as const;

const readers: readonly Attack[] = [
  ...[300, 1_000].flatMap((connections) =>
    unreadTargets.map(
      ({ name, request, stock }): Attack => ({
        name: `unread-${name}-${connections}`,
        guards: 'the write timeout: closed; bytes queued for slow readers: memory',
        about: `readers of ${request.slice(4, request.indexOf(' HTTP'))} that never read`,
        connections,
        sends: once({ send: request }),
        reads: 'nothing',
        seconds: 45,
        // All connect within seconds, and a page may wait 5 s for memory; then the timeout begins.
        bounds: { ...AFTER_A_BURST, closedMs: DEFAULT_WRITE_TIMEOUT + 5_000 },
        stock,
        bothEngines: true,
        bare: true,
        ...(connections === 300 &&
          name === 'page' && {
            short: {
              connections: 60,
              env: SHORT_WRITE_TIMEOUT,
              // A list may wait 5 s for room, and only then stall.
              seconds: 20,
              bounds: { closedMs: 20_000 },
            },
          }),
      }),
    ),
  ),
  {
    name: 'slow-readers',
    about: 'honest readers of 10 KB/s for two minutes, who then read the rest of their 8 MB',
    guards:
      'a write timeout that counts what the client has read: whole; bytes queued for slow readers: memory',
    connections: 10,
    sends: once({ send: get('/plants', LAST) }),
    reads: { perSecond: 10_000, forSeconds: 120 },
    seconds: 180,
    bounds: { isWhole: true, answersEach: 1, statuses: [200] },
    stock: LONG,
    bothEngines: true,
    short: {
      env: SHORT_WRITE_TIMEOUT,
      reads: { perSecond: 300_000, forSeconds: 5 },
      seconds: 10,
      bothEngines: false,
    },
  },
  {
    name: 'large-plants',
    about: 'lists of 64 plants of 16 MiB, read at full speed',
    guards: 'memory that is reserved before a large plant is read: memory, statuses',
    connections: 8,
    sends: once({ send: get('/plants') }, { answers: 1 }),
    reads: 'all',
    seconds: 60,
    bounds: { memory: 256 * MEBIBYTE, statuses: [200] },
    stock: { plants: 64, nameLength: 16 * MEBIBYTE },
    env: { BODY_LIMIT: '16777216' },
    bothEngines: true,
  },
];

const bodies: readonly Attack[] = [
  ...[
    { name: 'huge-length', headers: HOST, status: 401 },
    { name: 'huge-length-token', headers: TOKEN, status: 413 },
  ].map(
    ({ name, headers, status }): Attack => ({
      name,
      guards: 'the end of the connection after an early response: read, closed',
      about: `Content-Length: 9000000000, sent as fast as it is read, answered with ${status}`,
      connections: 1,
      sends: once(
        { send: `POST /plants HTTP/1.1\r\n${headers}${JSON_TYPE}Content-Length: 9000000000\r\n\r\n` },
        { flood: ' ' },
      ),
      reads: 'all',
      seconds: 4,
      bounds: { readBytes: MEBIBYTE, closedMs: 1_500, statuses: [status] },
      bare: true,
      ...(headers === HOST && { short: {} }),
    }),
  ),
  ...['POST', 'GET', 'DELETE'].map(
    (method): Attack => ({
      name: `endless-chunks-${method.toLowerCase()}`,
      guards: 'the body limit for every method: read, closed; execution only after the last byte: plants',
      about: `${method} with a chunked body without an end`,
      connections: 10,
      sends: [HOST, TOKEN].map((headers) => ({
        steps: [
          {
            send: `${method} ${method === 'POST' ? '/plants' : '/plants/{id}'} HTTP/1.1\r\n${headers}${JSON_TYPE}Transfer-Encoding: chunked\r\n\r\n`,
          },
          { flood: `400\r\n${' '.repeat(1_024)}\r\n` },
        ],
      })),
      reads: 'all',
      seconds: 4,
      bounds: { readBytes: 10 * MEBIBYTE, closedMs: 1_500, isUnchanged: true },
      bare: true,
    }),
  ),
  {
    name: 'upgrade-line-ends',
    about:
      'line ends without an end, after the malformed body of a request with Upgrade, whose errors Node hides',
    guards: 'errors of the parser after Upgrade: p99, closed',
    connections: 8,
    sends: once(
      {
        send: `OPTIONS /plants HTTP/1.1\r\n${HOST}Connection: Upgrade\r\nUpgrade: h2c\r\n${JSON_TYPE}Transfer-Encoding: chunked\r\n\r\nzz\r\n`,
      },
      { flood: '\n'.repeat(65_536) },
    ),
    reads: 'all',
    seconds: 4,
    bounds: { readBytes: 8 * MEBIBYTE, closedMs: 2_500, statuses: [400] },
  },
  {
    name: 'tiny-chunks-at-once',
    about: 'bodies of 10,000 chunks of one byte, in one write with headers that are accepted',
    guards: 'the limit of chunks, while they are parsed: longest wait',
    connections: 64,
    sends: onNewConnections(
      {
        send: `OPTIONS /plants HTTP/1.1\r\n${HOST}${JSON_TYPE}Transfer-Encoding: chunked\r\n\r\n${'1\r\n \r\n'.repeat(10_000)}`,
      },
      { answers: 1 },
    ),
    reads: 'all',
    seconds: 6,
    bounds: { longestMs: 500, statuses: [413] },
    short: { seconds: 2 },
  },
  {
    name: 'endless-spaces',
    about: 'spaces without an end in a header, which the parser of Node does not count',
    guards: 'the header limit: read, closed',
    connections: 8,
    sends: once({ send: 'GET / HTTP/1.1\r\nX-Fern:' }, { flood: ' '.repeat(65_536) }),
    reads: 'all',
    seconds: 4,
    bounds: { readBytes: 8 * MEBIBYTE, closedMs: 2_500, statuses: [431] },
  },
  {
    name: 'endless-headers',
    about: 'headers without an end',
    guards: 'the header limit: read, closed',
    connections: 50,
    sends: once({ send: 'GET / HTTP/1.1\r\n' }, { flood: `X-Fern: ${'x'.repeat(1_000)}\r\n` }),
    reads: 'all',
    seconds: 4,
    bounds: { readBytes: 50 * MEBIBYTE, closedMs: 2_500, statuses: [431] },
    bare: true,
  },
  {
    name: 'costly-bodies',
    about: 'bodies of 64 KiB that cost the most to parse, one after the other',
    guards: 'parsing in linear time, inside the limit of work in flight: p99',
    connections: 64,
    sends: costlyBodies.map(({ body }) => inALoop(post(TOKEN, body.toString('latin1')))),
    reads: 'all',
    seconds: 20,
    bounds: {},
    bare: true,
    short: { seconds: 2 },
  },
  {
    name: 'many-costly-bodies',
    about: 'the same from 256 connections',
    guards: 'the handler time per event-loop iteration: p99',
    connections: 256,
    sends: costlyBodies.map(({ body }) => inALoop(post(TOKEN, body.toString('latin1')))),
    reads: 'all',
    seconds: 20,
    // The service holds 256 bodies and their parsed form at once.
    bounds: { ...AFTER_A_BURST, memory: 256 * MEBIBYTE },
    bare: true,
  },
  {
    name: 'tiny-chunks',
    about: 'bodies of 60,000 chunks of one byte, sent before their token is looked up and rejected',
    guards: 'bodies that stay unparsed until their headers are checked: memory, p99',
    connections: 200,
    sends: once(
      {
        send: `POST /plants HTTP/1.1\r\n${HOST}Authorization: Bearer ${UNKNOWN_TOKEN}\r\n${JSON_TYPE}Transfer-Encoding: chunked\r\n\r\n`,
      },
      { send: '1\r\n{\r\n', times: 60_000 },
    ),
    reads: 'all',
    seconds: 8,
    bounds: { ...AFTER_A_BURST, statuses: [401, 429, 503], closedMs: 8_000 },
    bothEngines: true,
    short: { connections: 100 },
  },
  {
    name: 'broken-deletes',
    about: 'DELETE of plants that exist, with a body that is malformed',
    guards: 'execution only after the last byte: plants, responses',
    connections: 100,
    sends: ['zz\r\n', '0\r\nbad\r\n\r\n', '5;bad[=x\r\n'].map((body) => ({
      steps: [
        {
          send: `DELETE /plants/{id} HTTP/1.1\r\n${TOKEN}${JSON_TYPE}Transfer-Encoding: chunked\r\n\r\n${body}`,
        },
      ],
    })),
    reads: 'all',
    seconds: 3,
    bounds: { isUnchanged: true, statuses: [400], answersEach: 1, closedMs: 2_500 },
    bothEngines: true,
  },
  {
    name: 'unfinished-bodies',
    about: 'bodies that stall, without a token: one response each, and the connection is closed',
    guards: 'the end of the connection after an early response: closed, responses',
    connections: 500,
    sends: once({ send: `POST /plants HTTP/1.1\r\n${HOST}${JSON_TYPE}Content-Length: 500\r\n\r\n{` }),
    reads: 'all',
    seconds: 17,
    bounds: { statuses: [401], answersEach: 1, closedMs: 2_500 },
  },
];

const slowness: readonly Attack[] = [
  {
    name: 'unfinished-large-bodies',
    about: 'bodies without their last byte: with a token, and where no operation reads them',
    guards: 'the memory of bodies that arrive in parts: memory, statuses',
    connections: 700,
    sends: [`POST /plants HTTP/1.1\r\n${TOKEN}`, `OPTIONS /plants HTTP/1.1\r\n${HOST}`].map((head) => ({
      steps: [
        { send: `${head}${JSON_TYPE}Content-Length: 262144\r\n\r\n${' '.repeat(160_000)}` },
        { wait: 500 },
        { send: ' '.repeat(102_143) },
      ],
    })),
    reads: 'all',
    seconds: 20,
    bounds: { closedMs: 19_000, statuses: [408, 503] },
    env: { BODY_LIMIT: '262144' },
    short: {
      connections: 400,
      env: { ...SHORT_RECEIVE_TIMEOUTS, BODY_LIMIT: '262144' },
      seconds: 8,
      bounds: { closedMs: CLOSED_SOON_MS },
    },
  },
  {
    name: 'unfinished-headers',
    about: 'headers, and with a token trailers, without their end',
    guards: 'the memory of unfinished headers and trailers: memory, statuses, failures',
    connections: 6_000,
    sends: [
      `GET / HTTP/1.1\r\n${HOST}`,
      `POST /plants HTTP/1.1\r\n${TOKEN}${JSON_TYPE}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n`,
    ]
      .flatMap((begin) => Array.from({ length: 2 }, () => `${begin}X-Long: ${'x'.repeat(15_000)}`))
      // Small ones fill the rest of the memory.
      .concat(`GET / HTTP/1.1\r\n${HOST}X: ${'x'.repeat(UNCOUNTED_INPUT_BYTES)}`)
      .map((send) => ({ steps: [{ send }] })),
    reads: 'all',
    seconds: 25,
    // 6,000 idle connections take about 125 MiB. The last of them are made after some seconds.
    bounds: { memory: 176 * MEBIBYTE, closedMs: 24_000, statuses: [408, 503], ...AFTER_A_BURST },
    short: {
      connections: 2_000,
      env: SHORT_RECEIVE_TIMEOUTS,
      seconds: 8,
      bounds: { memory: 176 * MEBIBYTE, closedMs: CLOSED_SOON_MS, statuses: [408, 503] },
    },
  },
  {
    name: 'small-and-large-headers',
    about: 'thousands of unfinished headers that hardly count for the memory of input, then large ones',
    guards: 'rejecting thousands of inputs for one: failures, since an error there would end the service',
    connections: 6_000,
    sends: [SMALLEST_COUNTED, SMALLEST_COUNTED, UNFINISHED_HEAD].map((send) => ({
      steps: [{ wait: send === UNFINISHED_HEAD ? 4_000 : 0 }, { send }],
    })),
    reads: 'all',
    seconds: 12,
    bounds: { memory: 176 * MEBIBYTE, statuses: [408, 503], ...AFTER_A_BURST },
    short: { connections: 3_000, seconds: 8 },
  },
  {
    name: 'heads-without-body',
    about: 'as many headers as possible, long or tiny ones, and no byte of the body; no token',
    guards: 'the memory of headers while the body arrives: memory, statuses, failures',
    connections: 6_000,
    sends: Array.from({ length: 20 }, (_, index) => ({
      steps: [
        { wait: 400 * index },
        {
          send: `OPTIONS /plants HTTP/1.1\r\n${HOST}${headers(97, index % 2 === 0 ? 150 : 1)}${JSON_TYPE}Content-Length: 1\r\n\r\n`,
        },
      ],
    })),
    reads: 'all',
    seconds: 30,
    // Mostly garbage of rejected requests. The time for the body begins with the last head.
    bounds: { memory: 288 * MEBIBYTE, closedMs: 30_000, statuses: [408, 503], ...AFTER_A_BURST },
  },
  {
    name: 'slow-headers',
    about: 'headers byte by byte',
    guards: 'the header timeout: closed',
    connections: 1_000,
    sends: once({ trickle: 'GET / HTTP/1.1\r\nX-Slow: ', everyMs: 500 }),
    reads: 'all',
    seconds: 20,
    bounds: { closedMs: 14_000, statuses: [408] },
    bare: true,
  },
  {
    name: 'slow-bodies',
    about: 'bodies byte by byte, with a token',
    guards: 'the request timeout: closed',
    connections: 1_000,
    sends: once(
      { send: `POST /plants HTTP/1.1\r\n${TOKEN}${JSON_TYPE}Content-Length: 500\r\n\r\n` },
      { trickle: '{"id":1,"name":"', everyMs: 500 },
    ),
    reads: 'all',
    seconds: 25,
    bounds: { closedMs: 19_000, statuses: [408], answersEach: 1 },
    bare: true,
  },
  {
    name: 'one-byte',
    about: 'one byte on each of many connections, then silence',
    guards: 'the header timeout: closed',
    connections: 2_000,
    sends: once({ send: 'G' }),
    reads: 'all',
    seconds: 20,
    bounds: { closedMs: 14_000, statuses: [408] },
    bare: true,
  },
  {
    name: 'idle-at-the-limit',
    about: 'idle connections over the limit: the longest idle are closed, and no client is rejected',
    guards: 'closing idle connections at the limit: failures, statuses',
    connections: 3_000,
    sends: once({ send: NOTHING_THERE }),
    reads: 'all',
    seconds: 10,
    bounds: { statuses: [404], answersEach: 1 },
    env: { MAX_CONNECTIONS: '2000' },
    // On a busy machine, the connections of the other clients may be the longest idle. Without the guard, each
    // new connection fails: hundreds.
    short: { connections: 300, env: { MAX_CONNECTIONS: '200' }, seconds: 2, bounds: { failures: 24 } },
  },
  {
    name: 'silent-at-the-limit',
    about: 'connections over the limit that never send a byte',
    guards: 'closing idle connections at the limit: failures, statuses',
    connections: 3_000,
    sends: once({ wait: 0 }),
    reads: 'all',
    seconds: 10,
    bounds: { statuses: [408] },
    env: { MAX_CONNECTIONS: '2000' },
  },
  {
    name: 'unfinished-at-the-limit',
    about: 'connections over the limit that send one byte, and then nothing',
    guards: 'closing unfinished requests at the limit: failures',
    connections: 3_000,
    sends: once({ send: 'G' }),
    reads: 'all',
    seconds: 10,
    // Others, 350 to 450 a second, fail for the first two to three seconds. Without the limit, 7,000 fail.
    bounds: { failures: 2_000, statuses: [408, 503], ...AFTER_A_BURST },
    env: { MAX_CONNECTIONS: '2000' },
  },
  {
    name: 'large-heads-at-once',
    about:
      'requests with the largest headers on many connections in the same moment; no token; a heap of 144 MiB',
    guards:
      'the time of the parser per event-loop iteration: failures, longest, since a heap that is full ends the service',
    connections: 6_000,
    addresses: 4,
    sends: once({ wait: 2_000 }, ...[1, 2, 3].flatMap(() => [{ send: LARGEST_HEAD }, { wait: 2_000 }])),
    reads: 'all',
    seconds: 9,
    // A third is for idle connections.
    bounds: { memory: 320 * MEBIBYTE, statuses: [401, 503], ...AFTER_A_BURST },
    env: { NODE_OPTIONS: '--max-old-space-size=144' },
  },
  {
    name: 'unread-at-the-limit',
    about: 'connections over the limit with pipelined answers that are not read',
    guards: 'closing unread responses at the limit: failures',
    connections: 300,
    sends: once({ send: get('/openapi.json', HOST), times: 250 }),
    reads: 'nothing',
    seconds: 25,
    // Others, 300 to 900 a second, fail for the first five seconds. Without the limit, they fail until the end.
    bounds: { failures: 6_000, ...AFTER_A_BURST },
    env: { MAX_CONNECTIONS: '200' },
  },
  {
    name: 'churn',
    about: 'a new connection for each request, as fast as they open',
    guards: 'the cost of a connection: p99',
    connections: 64,
    sends: onNewConnections({ send: NOTHING_THERE }, { answers: 1 }),
    reads: 'all',
    seconds: 10,
    bounds: { statuses: [404] },
    bare: true,
  },
  {
    name: 'churn-reset',
    about: 'connections that are reset after their request, as fast as they open',
    guards: 'cancelling work for disconnected clients: p99, idle',
    connections: 64,
    sends: onNewConnections({ send: get('/plants?limit=20') }, { leave: 'RST' }),
    reads: 'all',
    seconds: 10,
    bounds: {},
    bothEngines: true,
    bare: true,
  },
];

const lists: readonly Attack[] = [
  ...['GET', 'HEAD'].map(
    (method): Attack => ({
      name: `hung-up-${method.toLowerCase()}`,
      guards:
        'cancelling work for disconnected clients: idle, failures; the share of an owner: failures, memory',
      about: `${method} of a page of all plants, reset after 200 ms`,
      connections: 256,
      sends: once(
        { send: get('/plants?limit=999999').replace('GET', method) },
        { wait: 200 },
        { leave: 'RST' },
      ),
      reads: 'nothing',
      seconds: 2,
      watchSeconds: 10,
      bounds: { ...AFTER_A_BURST, idleMs: 2_000 },
      stock: MILLION,
      bothEngines: true,
      ...(method === 'HEAD' && { short: { stock: SHORTER, watchSeconds: 3 } }),
    }),
  ),
  {
    name: 'one-owner',
    about: 'long lists of one owner over its limit',
    guards: 'the share of an owner: failures, p99',
    connections: 400,
    sends: [inALoop(get('/plants?limit=5000'))],
    reads: 'all',
    seconds: 15,
    bounds: AFTER_A_BURST,
    stock: { plants: 5_000, nameLength: 20 },
    bothEngines: true,
    short: { seconds: 2 },
  },
  {
    name: 'whole-lists',
    about: 'lists of all of a million plants, read at full speed',
    guards: 'fairness between lists: p99, memory',
    // As many lists as one owner may read at a time.
    connections: 48,
    sends: [inALoop(get('/plants'))],
    reads: 'all',
    seconds: 20,
    // About 40 ms, but over 110 ms without the limit on pages that are read at once.
    bounds: { p99Ms: 80, statuses: [200] },
    stock: MILLION,
    bothEngines: true,
  },
];

const guesses: readonly Attack[] = [
  {
    name: 'guessed-tokens',
    about: 'a new unknown token in each request, from 200 addresses',
    guards: 'the separate limit of tokens that were valid before: failures',
    connections: 400,
    addresses: 200,
    sends: [inALoop(get('/plants', `${HOST}Authorization: Bearer {guess}\r\n`))],
    reads: 'all',
    seconds: 15,
    bounds: { ...AFTER_A_BURST, statuses: [401, 429, 503] },
    bothEngines: true,
    short: { seconds: 3 },
  },
  {
    name: 'forged-tokens',
    about: 'a new forged JWT in each request, from 400 addresses',
    guards: 'the limit of JWTs that are verified, except for those that were valid before: p99',
    connections: 400,
    addresses: 400,
    sends: [inALoop(get('/plants', `${HOST}Authorization: Bearer {forged}\r\n`))],
    reads: 'all',
    seconds: 15,
    bounds: { ...AFTER_A_BURST, statuses: [401, 429, 503] },
    hasProvider: true,
    short: { seconds: 3 },
  },
];

const admin: readonly Attack[] = [
  {
    name: 'admin-pipelined',
    about: '3,000 pipelined /metrics each, not read',
    guards:
      'queued requests of a connection on the admin listener as well: p99, memory; the write timeout: closed',
    connections: 10,
    sends: once({ send: METRICS, times: 3_000 }),
    reads: 'nothing',
    seconds: 40,
    bounds: { closedMs: DEFAULT_WRITE_TIMEOUT },
    port: 'admin',
    short: { env: SHORT_WRITE_TIMEOUT, seconds: 8, bounds: { closedMs: CLOSED_SOON_MS } },
  },
  {
    name: 'admin-scrapers',
    about: '/metrics, one after the other',
    guards: 'metrics that are rendered up to once a second: p99',
    connections: 64,
    sends: [inALoop(METRICS)],
    reads: 'all',
    seconds: 10,
    bounds: { statuses: [200] },
    port: 'admin',
  },
];

const handshakes: readonly Attack[] = [
  { name: 'tls-silent', about: 'TCP connections to the TLS port, no bytes sent', first: '' },
  {
    name: 'tls-half-hello',
    about: 'half a ClientHello',
    first: '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03',
  },
  { name: 'tls-plain', about: 'plain HTTP to the TLS port', first: NOTHING_THERE },
].map(
  ({ name, about, first }): Attack => ({
    name,
    about,
    guards: 'the timeout of the handshake: closed',
    connections: 500,
    sends: once({ send: first }),
    reads: 'all',
    seconds: 18,
    bounds: { closedMs: 14_000 },
    rawToTls: true,
  }),
);

const stops: readonly Attack[] = [
  {
    name: 'stop-silent-tls',
    about: 'SIGTERM with silent TLS connections',
    guards: 'a stop that closes connections without a handshake: stop',
    connections: 500,
    sends: once({ wait: 0 }),
    reads: 'all',
    seconds: 20,
    bounds: {},
    rawToTls: true,
    event: { kind: 'stop', afterMs: 2_000 },
    short: { connections: 100, event: { kind: 'stop', afterMs: 1_000 } },
  },
  {
    name: 'stop-unread',
    about: 'SIGTERM with lists that are not read',
    guards: 'a stop that closes connections without progress: stop',
    connections: 300,
    sends: once({ send: get('/plants') }),
    reads: 'nothing',
    seconds: 30,
    bounds: AFTER_A_BURST,
    stock: LONG,
    // Long enough for a p99 that is not that of the burst alone.
    event: { kind: 'stop', afterMs: 10_000 },
    bothEngines: true,
  },
  {
    name: 'stop-unfinished',
    about: 'SIGTERM with half-sent requests',
    guards: 'a stop that closes unfinished requests: stop',
    connections: 300,
    sends: once({ send: `POST /plants HTTP/1.1\r\n${TOKEN}${JSON_TYPE}Content-Length: 500\r\n\r\n{` }),
    reads: 'all',
    seconds: 20,
    bounds: {},
    event: { kind: 'stop', afterMs: 1_000 },
  },
  {
    name: 'unread-output',
    about: 'requests that fill an unread log, then SIGTERM',
    guards: 'a log that drops lines when it is not read: p99, stop',
    connections: 20,
    sends: [inALoop(NOTHING_THERE)],
    reads: 'all',
    seconds: 10,
    bounds: { statuses: [404] },
    event: { kind: 'unread output' },
    short: { seconds: 2 },
  },
  {
    name: 'suspended',
    about: 'SIGSTOP with pending requests on open connections: all get responses',
    guards: 'timeouts that read the sockets first: statuses',
    connections: 100,
    sends: [0, 20].map((cut) => {
      const request = get('/plants?limit=1');
      return {
        steps: [
          { send: request.slice(0, cut) },
          { wait: 6_000 },
          { send: request.slice(cut) },
          { answers: 1 },
          { leave: 'FIN' },
        ],
      };
    }),
    reads: 'all',
    seconds: 40,
    bounds: { answersEach: 1, statuses: [200], samples: 0 },
    event: { kind: 'suspend', afterMs: 5_000, forMs: 20_000 },
    bothEngines: true,
  },
];

/**
 * All attacks. A bound that an attack does not name has its default (test/long/abuse/verdict.ts). `lifted-limits.ts`
 * lifts the limits that `guards` names; the bounds after the colon must then break.
 */
export const catalogue: readonly Attack[] = [
  ...pipelining,
  ...readers,
  ...bodies,
  ...slowness,
  ...lists,
  ...guesses,
  ...admin,
  ...handshakes,
  ...stops,
];
