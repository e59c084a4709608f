import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createServer as createTlsServer } from 'node:https';
import { createServer, type Socket } from 'node:net';
import { describe, test } from 'node:test';
import { inspect } from 'node:util';
import { runInNewContext } from 'node:vm';
import { createClient, PlantStoreError } from '../../client/src/client.ts';
import { freshFolder } from '../support/engines.ts';
import { listenOnFreePort } from '../support/servers/free-port.ts';
import { serve } from '../support/servers/stub-server.ts';
import { startService } from '../support/service.ts';

const FERN = { id: 7, name: 'Fern' };

/** A token that no other text contains. */
const TOKEN = 'plt_secret';

describe('a wrong base path', () => {
  test('the url ends in /plants → the message names the request and the option', async (t) => {
    const service = await startService(t, `sqlite:${await freshFolder()}/plants.db`);
    const client = createClient({ url: `${service.url}/plants`, token: await service.token() });
    const path = `${service.url}/plants/plants`;
    await assert.rejects(client.createPlant(FERN), {
      code: 40500,
      message: `POST is not allowed for this path; use one of DELETE, OPTIONS (POST ${path}; check the option url)`,
    });
    await assert.rejects(client.deletePlant(7), {
      code: 40401,
      message: `no such route; paths are case-sensitive, and none ends with a slash; see /docs (DELETE ${path}/7; check the option url)`,
    });
    await service.close();
  });

  test('the url lacks the base path → the message names the request and the option', async (t) => {
    const service = await startService(t, `sqlite:${await freshFolder()}/plants.db`, { basePath: '/v1' });
    const { origin } = new URL(service.url);
    const client = createClient({ url: origin, token: await service.token() });
    await assert.rejects(Array.fromAsync(client.listPlants()), {
      code: 40401,
      message: `no such route; paths are case-sensitive, and none ends with a slash; see /v1/docs (GET ${origin}/plants; check the option url)`,
    });
    await service.close();
  });

  test('another error of the service → its message alone', async (t) => {
    const service = await startService(t, `sqlite:${await freshFolder()}/plants.db`);
    const client = createClient({ url: service.url, token: await service.token() });
    await assert.rejects(client.deletePlant(7), {
      code: 40400,
      message: 'there is no plant with the id 7',
    });
    await service.close();
  });
});

test('an error of another server that repeats the token → message without the token', async (t) => {
  const url = await serve(t, (_request, response) =>
    response.writeHead(400).end(JSON.stringify({ error: 40000, message: `the token ${TOKEN} is wrong` })),
  );
  const client = createClient({ url, token: TOKEN, retries: 0 });
  await assert.rejects(client.createPlant(FERN), { code: 40000, message: 'the token [token] is wrong' });
});

test('a response that repeats the token in its headers → neither its error nor its hook has it', async (t) => {
  const url = await serve(t, ({ headers }, response) => {
    const cookies = [`a=${TOKEN}`, 'b=1'];
    response.writeHead(400, {
      'x-echo': headers.authorization,
      'x-request-id': TOKEN,
      'set-cookie': cookies,
    });
    response.end('{"error":40000,"message":"wrong"}');
  });
  const hooked: unknown[] = [];
  const client = createClient({ url, token: TOKEN, afterAttempt: (attempt) => void hooked.push(attempt) });
  const failure = await failureOf(client.createPlant(FERN));
  assert.equal(failure.headers?.get('x-echo'), 'Bearer [token]');
  assert.deepEqual(failure.headers.getSetCookie(), ['a=[token]', 'b=1']);
  assert.equal(failure.requestId, '[token]');
  assert.doesNotMatch(inspect([failure, hooked], { depth: null, showHidden: true }), /secret/);
});

test('a server that sends the request back → the error has neither the token nor the plant', async (t) => {
  const server = createServer((socket) => socket.pipe(socket));
  t.after(() => server.close());
  const url = `http://127.0.0.1:${await listenOnFreePort(server)}`;
  const failure = await failureOf(createClient({ url, token: TOKEN, retries: 0 }).createPlant(FERN));
  assert.ok(failure.cause instanceof Error && failure.cause.cause instanceof Error);
  assert.match(failure.cause.message, /fetch failed/);
  assert.equal(failure.cause.cause.name, 'HTTPParserError');
  assert.doesNotMatch(inspect(failure, { depth: null, showHidden: true }), /secret|Fern/);
});

test('a fetch of the user that throws the request → the error has its class name, message and stack, without the token', async () => {
  const echo = (text: string): Error => Object.assign(new RangeError(text), { code: 7, data: text });
  const fetch: typeof globalThis.fetch = async (_url, init) => {
    const text = `sent ${new Headers(init?.headers).get('authorization')}`;
    const cycle = new Error('cycle');
    cycle.cause = cycle;
    const causes = [echo(text), cycle, text];
    throw new AggregateError(causes, text, { cause: text });
  };
  const failure = await failureOf(
    createClient({ url: 'http://h', token: TOKEN, retries: 0, fetch }).createPlant(FERN),
  );
  assert.equal(failure.message, 'no answer from POST http://h/plants (sent Bearer [token])');
  assert.ok(failure.cause instanceof Error);
  const { name, message, stack, cause } = failure.cause;
  assert.deepEqual([name, message, cause], ['AggregateError', 'sent Bearer [token]', 'sent Bearer [token]']);
  assert.match(stack ?? '', /sent Bearer \[token\]\n +at .*client-messages/);
  const [first] = Reflect.get(failure.cause, 'errors');
  assert.deepEqual([first.name, first.code], ['RangeError', 7]);
  assert.doesNotMatch(inspect(failure, { depth: null, showHidden: true }), /secret/);
});

for (const [token, hidden] of [
  [TOKEN, String.raw`plt\u005fsecret`],
  ['abc/def+ghi=', String.raw`abc\/def\u002Bghi=`],
] as const) {
  test(`the token ${token} in JSON escapes, ${hidden} → replaced in each message`, async (t) => {
    for (const [status, body, message] of [
      [400, `{"error":40000,"message":"got ${hidden}"}`, /^got \[token\]$/],
      [500, `{"got":"${hidden}"}`, /begins with "\{\\"got\\":\\"\[token\]\\"\}"/],
    ] as const) {
      const url = await serve(t, (_request, response) => response.writeHead(status).end(body));
      await assert.rejects(createClient({ url, token }).createPlant(FERN), { status, message });
    }
  });
}

for (const token of ['e', 'taken', '"error"']) {
  test(`the token ${token}, shorter than 8 characters → the error of the service stays as it is`, async (t) => {
    const body = '{"error":40002,"message":"the id is taken"}';
    const url = await serve(t, (_request, response) => response.writeHead(400).end(body));
    const rejection = { code: 40002, message: 'the id is taken' };
    await assert.rejects(createClient({ url, token }).createPlant(FERN), rejection);
  });
}

test('an error of fetch or of the token function with control characters → the message has none', async () => {
  const text = 'the host is not in: \u001b[2J\u009b31m\u202e\nplants';
  const safe = 'the host is not in: \ufffd[2J\ufffd31m\ufffd\ufffdplants';
  const fail = () => Promise.reject(new TypeError('fetch failed', { cause: new Error(text) }));
  const options = { url: 'http://h', token: TOKEN, retries: 0 };
  const failure = await failureOf(createClient({ ...options, fetch: fail }).createPlant(FERN));
  assert.equal(failure.message, `no answer from POST http://h/plants (${safe})`);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the test is about terminal control sequences
  assert.doesNotMatch(inspect(failure), /[\u001b\u009b\u202e]/);
  await assert.rejects(createClient({ ...options, token: fail }).createPlant(FERN), {
    message: `no token for POST http://h/plants (${safe})`,
  });
});

describe('an error of fetch of another realm, as all have in Jest', () => {
  const unsent = "Object.assign(new Error('connect'), { code: 'ECONNREFUSED', syscall: 'connect' })";
  for (const [source, reason] of [
    [`new TypeError('fetch failed', { cause: ${unsent} })`, 'connect'],
    ["Object.assign(new Error('no port'), { code: 'ECONNREFUSED' })", 'no port'],
    [`new AggregateError([${unsent}, ${unsent}], 'no address')`, 'no address'],
  ] as const) {
    test(`${source} → its reason, a copy as the cause, and outcomeUnknown is false`, async () => {
      const error: unknown = runInNewContext(source);
      assert.ok(!(error instanceof Error));
      const fetch = () => Promise.reject(error);
      const failure = await failureOf(
        createClient({ url: 'http://h', token: TOKEN, retries: 0, fetch }).createPlant(FERN),
      );
      assert.equal(failure.message, `no answer from POST http://h/plants (${reason})`);
      assert.equal(failure.outcomeUnknown, false);
      assert.ok(failure.cause instanceof Error);
      assert.match(inspect(failure.cause), /code: 'ECONNREFUSED'/);
    });
  }
});

test('an error of fetch without a text → the call still rejects with PlantStoreError, and a reason', async () => {
  for (const [thrown, reason] of [
    [Object.create(null), '[object Object]'],
    [new TypeError('fetch failed', { cause: new Error() }), 'fetch failed'],
  ] as const) {
    const fetch = () => Promise.reject(thrown);
    const failure = await failureOf(
      createClient({ url: 'http://h', token: TOKEN, retries: 0, fetch }).createPlant(FERN),
    );
    assert.equal(failure.message, `no answer from POST http://h/plants (${reason})`);
  }
});

describe('an answer of another program', () => {
  for (const [status, body, end] of [
    [502, '', 'its status is 502, its body is empty'],
    [404, '', 'its status is 404, its body is empty; is the option url right?'],
    [200, '', 'its status is 200, its body is empty; is the option url right?'],
    [
      500,
      'a\r\n\u001b[31m\u009b31m\u202e"',
      String.raw`begins with "a\r\n\u001b[31m${'\ufffd'}31m${'\ufffd'}\""`,
    ],
    [500, 'ä'.repeat(200), `begins with "${'ä'.repeat(100)}"`],
    [500, `${TOKEN} ${'x'.repeat(88)}${TOKEN}`, `begins with "[token] ${'x'.repeat(88)}[tok"`],
  ] as const) {
    test(`${status} with the body ${JSON.stringify(body.slice(0, 30))} → named with its request`, async (t) => {
      const url = await serve(t, (_request, response) => response.writeHead(status).end(body));
      const client = createClient({ url, token: TOKEN, retries: 0 });
      await assert.rejects(client.createPlant(FERN), ({ message }: Error) => {
        assert.ok(
          message.startsWith(`the answer to POST ${url}/plants is not that of a Plant Store: `),
          message,
        );
        assert.ok(message.endsWith(end), message);
        assert.doesNotMatch(message, /secret/);
        return true;
      });
    });
  }
});

describe('an answer that repeats the token again and again', () => {
  for (const length of [8, 9, 51, 4_096]) {
    for (const [form, write] of [
      ['as it is', (text: string) => text],
      [
        'in JSON escapes',
        (text: string) => text.replace(/./g, (one) => `\\u00${one.charCodeAt(0).toString(16)}`),
      ],
    ] as const) {
      test(`a token of ${length} characters ${form} → the message has no part of it, wherever it begins`, async () => {
        const token = 'S'.padEnd(length, 's');
        for (let before = 0; before <= 100; before += 1) {
          const body = write(`${'-'.repeat(before)}${token.repeat(40)}`);
          const fetch = async (): Promise<Response> => new Response(body);
          const client = createClient({ url: 'http://h', token, fetch });
          const shown = `${'-'.repeat(before)}${'[token]'.repeat(15)}`.slice(0, 100);
          await assert.rejects(Array.fromAsync(client.listPlants()), ({ message }: Error) => {
            assert.ok(message.endsWith(`its body begins with "${shown}"; is the option url right?`), message);
            return true;
          });
        }
      });
    }
  }
});

describe('a TLS handshake that fails', () => {
  test('the port speaks plain HTTP → outcomeUnknown is false, and the message asks for http://', async (t) => {
    const url = (await serve(t, () => assert.fail('a request arrived'))).replace('http:', 'https:');
    const client = createClient({ url, token: TOKEN, retries: 0 });
    await assert.rejects(client.createPlant(FERN), {
      message: `no answer from POST ${url}/plants (ERR_SSL_WRONG_VERSION_NUMBER; is it http://?)`,
      outcomeUnknown: false,
    });
  });

  for (const [title, end, reason, outcomeUnknown] of [
    ['closed', (socket) => socket.resume().end(), 'Client network socket disconnected before .*', false],
    // The reason of a reset does not show that nothing was sent.
    ['reset', (socket) => socket.once('data', () => socket.resetAndDestroy()), 'read ECONNRESET', true],
  ] as const satisfies readonly (readonly [string, (socket: Socket) => void, string, boolean])[]) {
    test(`the connection is ${title} → the message has the reason; outcomeUnknown is ${outcomeUnknown}`, async (t) => {
      const server = createServer(end);
      t.after(() => server.close());
      const url = `https://127.0.0.1:${await listenOnFreePort(server)}`;
      const client = createClient({ url, token: TOKEN, retries: 0 });
      await assert.rejects(client.createPlant(FERN), {
        message: new RegExp(`^no answer from POST ${url}/plants \\(${reason}\\)$`),
        outcomeUnknown,
      });
    });
  }

  for (const [title, options, code, outcomeUnknown] of [
    [
      'no common version',
      { minVersion: 'TLSv1', maxVersion: 'TLSv1.1' },
      'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION',
      false,
    ],
    ['another alert', { requestCert: true, maxVersion: 'TLSv1.2' }, 'ERR_SSL_\\S+_HANDSHAKE_FAILURE', true],
  ] as const) {
    test(`${title} → the message has the code alone; outcomeUnknown is ${outcomeUnknown}`, async (t) => {
      const [key, cert] = await Promise.all(
        ['key', 'pem'].map((kind) =>
          readFile(new URL(`../support/certificates/first.${kind}`, import.meta.url)),
        ),
      );
      const server = createTlsServer({ key, cert, ...options }, () => assert.fail('a request arrived'));
      t.after(() => server.close());
      const url = `https://127.0.0.1:${await listenOnFreePort(server)}`;
      const client = createClient({ url, token: TOKEN, retries: 0 });
      await assert.rejects(client.createPlant(FERN), {
        message: new RegExp(`^no answer from POST ${url}/plants \\(${code}\\)$`),
        outcomeUnknown,
      });
    });
  }
});

/** Resolves to the error of a call. */
async function failureOf(call: Promise<unknown>): Promise<PlantStoreError> {
  const failure: unknown = await call.catch((error: unknown) => error);
  assert.ok(failure instanceof PlantStoreError);
  return failure;
}
