import { setTimeout } from 'node:timers/promises';
import { openWire } from '../support/clients/raw-connection.ts';
import { type RawAnswer, takeAnswer } from '../support/clients/raw-http.ts';
import { BODY_LIMIT } from '../support/data/costly-bodies.ts';
import { execute, rowsOf } from '../support/engines.ts';
import { newInstallation } from '../support/program.ts';
import { readFlags } from '../support/script-flags.ts';
import { startPostgres } from '../support/servers/postgres-server.ts';
import { startOthers } from './abuse/other-clients.ts';
import { fillStore } from './long-list.ts';

/** Broken requests: every fault with every method and framing, with and without a token. */
const methods = ['GET', 'POST', 'DELETE', 'OPTIONS'] as const;
const framings = ['chunked', 'Content-Length'] as const;

type Method = (typeof methods)[number];

/** The bytes after the headers, and the headers that frame them. */
interface Fault {
  readonly name: string;
  readonly chunked: Message;
  readonly length: Message;
}

interface Message {
  /** The framing headers. */
  readonly headers: string;
  /** Derived from a complete and valid body. */
  readonly content: (body: string) => string;
  /** True if the client ends its sending side afterwards. */
  readonly isEnd?: true;
}

const CHUNKED = 'Transfer-Encoding: chunked\r\n';
const TOO_LONG = BODY_LIMIT + 500;

function lengthOf(length: number | string): string {
  return `Content-Length: ${length}\r\n`;
}

function chunk(text: string): string {
  return `${text.length.toString(16)}\r\n${text}\r\n`;
}

/** Longer than every body in this file. */
const MORE = 500;

// Some faults exist only for chunks; for Content-Length a fault of that header replaces them.
const faults: readonly Fault[] = [
  {
    name: 'a malformed chunk size or length',
    chunked: { headers: CHUNKED, content: (body) => `${chunk(body)}zz\r\n` },
    length: { headers: lengthOf('5x'), content: (body) => body },
  },
  {
    name: 'a bad trailer, or two lengths',
    chunked: { headers: CHUNKED, content: (body) => `${chunk(body)}0\r\nbad\r\n\r\n` },
    length: { headers: lengthOf(5) + lengthOf(6), content: (body) => body },
  },
  {
    name: 'a bad chunk extension, or chunks with a length',
    chunked: { headers: CHUNKED, content: (body) => `${chunk(body)}0;bad[=x\r\n\r\n` },
    length: { headers: lengthOf(5) + CHUNKED, content: (body) => `${chunk(body)}0\r\n\r\n` },
  },
  {
    name: 'an end before the end of the body',
    chunked: { headers: CHUNKED, content: chunk, isEnd: true },
    length: { headers: lengthOf(MORE), content: (body) => body, isEnd: true },
  },
  {
    name: 'a body that stalls',
    chunked: { headers: CHUNKED, content: chunk },
    length: { headers: lengthOf(MORE), content: (body) => body },
  },
  {
    name: 'a body over the limit',
    chunked: { headers: CHUNKED, content: (body) => `${chunk(body.padEnd(TOO_LONG))}0\r\n\r\n` },
    length: { headers: lengthOf(TOO_LONG), content: (body) => body.padEnd(TOO_LONG) },
  },
  {
    name: 'an end right after the headers',
    chunked: { headers: CHUNKED, content: () => '', isEnd: true },
    length: { headers: lengthOf(MORE), content: () => '', isEnd: true },
  },
];

interface BrokenRequest {
  readonly title: string;
  readonly method: Method;
  readonly hasToken: boolean;
  /** The id of the plant that it would delete or create. */
  readonly id: number;
  readonly bytes: string;
  readonly isEnd: boolean;
}

/** Ids from here on are free; lower ids belong to existing plants. */
const FREE = 1_000_000;

/** Returns the whole matrix. Its ids start at `firstId`; plants with these ids must exist to be deleted. */
export function brokenRequests(token: string, firstId: number): readonly BrokenRequest[] {
  const combinations = faults.flatMap((fault) =>
    methods.flatMap((method) =>
      framings.flatMap((framing) => [true, false].map((hasToken) => ({ fault, method, framing, hasToken }))),
    ),
  );
  return combinations.map(({ fault, method, framing, hasToken }, index) => {
    const id = method === 'POST' ? FREE + firstId + index : firstId + index;
    const { headers, content, isEnd } = framing === 'chunked' ? fault.chunked : fault.length;
    const target = method === 'DELETE' ? `/plants/${id}` : '/plants';
    const authorization = hasToken ? `Authorization: Bearer ${token}\r\n` : '';
    const head = `${method} ${target} HTTP/1.1\r\nHost: plants.test\r\n${authorization}Content-Type: application/json\r\n${headers}\r\n`;
    return {
      title: `${method} ${framing} ${hasToken ? 'with a token' : 'without a token'}: ${fault.name}`,
      method,
      hasToken,
      id,
      bytes: head + content(`{"id":${id},"name":"Fern"}`),
      isEnd: isEnd === true,
    };
  });
}

/** The number of ids per matrix. */
export const MATRIX_SIZE = faults.length * methods.length * framings.length * 2;

const CLOSES_WITHIN_MS = 15_000;

/** Sends a broken request. Resolves to the problems with the response: exactly one final response, then the end. */
export async function sendBroken(url: string, request: BrokenRequest): Promise<readonly string[]> {
  const wire = openWire(url);
  wire.send(request.bytes);
  if (request.isEnd) wire.end();
  try {
    const received = await wire.rest(CLOSES_WITHIN_MS);
    return wrongWith(finalResponses(received), request);
  } catch (error: unknown) {
    return [`${request.title}: ${error instanceof Error ? error.message : String(error)}`];
  } finally {
    wire.destroy();
  }
}

function finalResponses(received: Buffer): readonly RawAnswer[] {
  const answers: RawAnswer[] = [];
  for (let rest = received; rest.length > 0; ) {
    const taken = takeAnswer(rest, false);
    if (taken === undefined)
      throw new Error(`a response is incomplete: ${JSON.stringify(rest.toString('latin1'))}`);
    answers.push(taken.answer);
    rest = taken.rest;
  }
  return answers;
}

function wrongWith(answers: readonly RawAnswer[], { title, method, hasToken }: BrokenRequest): string[] {
  const statuses = answers.map(({ status }) => status);
  const [status = 0] = statuses;
  if (statuses.length !== 1) return [`${title}: ${statuses.join(', ') || 'no response'}`];
  const isExpected =
    [400, 408, 413].includes(status) ||
    (method === 'OPTIONS' && status === 204) ||
    (method !== 'OPTIONS' && !hasToken && status === 401);
  return isExpected ? [] : [`${title}: ${status}`];
}

/** Returns the effects of broken requests on the plants of an owner, although every response was an error. */
export async function effectsOf(
  databaseUrl: string,
  owner: string,
  requests: readonly BrokenRequest[],
): Promise<readonly string[]> {
  const rows = await rowsOf(databaseUrl, `SELECT id FROM plants WHERE owner = '${owner}'`);
  const ids = new Set(rows.map(({ id }) => Number(id)));
  return requests.flatMap(({ title, method, id }) => {
    if (method === 'POST' && ids.has(id)) return [`${title}: created`];
    if (method !== 'POST' && !ids.has(id)) return [`${title}: deleted`];
    return [];
  });
}

/** Creates the plants that a matrix would delete. */
export async function plantForMatrix(databaseUrl: string, owner: string, count: number): Promise<void> {
  const numbers = Array.from({ length: count }, (_, index) => `('${owner}', ${index}, 'Kept', NULL)`);
  await execute(databaseUrl, `INSERT INTO plants (owner, id, name, tag) VALUES ${numbers.join(',')}`);
}

/** Header and request timeouts, short so that stalled requests end soon. */
export const SHORT_TIMEOUT_MS = '1000';

const OWNER = 'mallory';
const LOADS = 4;

if (import.meta.main) {
  const values = readFlags(
    'Sends broken requests under load. Checks that each gets one response and has no effect.',
    {
      rounds: { type: 'string', default: '50', about: 'how often each request is sent' },
      engine: {
        type: 'string',
        takes: 'sqlite|postgres',
        default: 'sqlite',
        about: 'store engine',
      },
    },
  );
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const server = values.engine === 'postgres' ? await startPostgres() : undefined;
  if (server !== undefined) ending.defer(() => server.remove());
  const databaseUrl = server?.url() ?? installation.databaseUrl;
  const rounds = Number(values.rounds);
  const token = await installation.token(OWNER, '--database-url', databaseUrl);
  const othersToken = await installation.token('alice', '--database-url', databaseUrl);
  await plantForMatrix(databaseUrl, OWNER, rounds * MATRIX_SIZE);
  await fillStore(databaseUrl, 'alice', 10_000, 20);
  const service = await installation.serve({
    env: { NODE_ENV: 'production', DATABASE_URL: databaseUrl },
    flags: ['--header-timeout', SHORT_TIMEOUT_MS, '--request-timeout', SHORT_TIMEOUT_MS],
    remembers: ({ msg, level }) => msg === 'serving' || Number(level) >= 50,
  });
  const loads = Array.from({ length: LOADS }, (_, index) =>
    startOthers({ ...service, token: othersToken, firstId: (index + 1) * 1_000_000 }),
  );
  await setTimeout(500);
  const wrong: string[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const requests = brokenRequests(token, round * MATRIX_SIZE);
    const results = await Promise.all(requests.map((request) => sendBroken(service.url, request)));
    const found = [...results.flat(), ...(await effectsOf(databaseUrl, OWNER, requests))];
    for (const line of found.slice(0, 20)) write(`round ${round + 1}: ${line}`);
    wrong.push(...found);
  }
  const figures = await Promise.all(loads.map((load) => load.stop()));
  const asked = figures.reduce((sum, { requests }) => sum + requests.count, 0);
  const failures = figures.flatMap((one) => one.failures);
  for (const failure of failures.slice(0, 20)) write(`another client: ${failure}`);
  const { code } = await service.stop();
  write(
    `${rounds * MATRIX_SIZE} broken requests, ${wrong.length} faults; ${asked} requests of others meanwhile, ${failures.length} failed; exit code ${code}`,
  );
  if (wrong.length + failures.length > 0 || code !== 0) process.exitCode = 1;
}
