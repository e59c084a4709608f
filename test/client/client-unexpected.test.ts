import assert from 'node:assert/strict';
import type { OutgoingHttpHeaders } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { describe, type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { gzipSync } from 'node:zlib';
import { type Client, createClient, type Fetch } from '../../client/src/client.ts';
import { serve } from '../support/servers/stub-server.ts';

const FERN = { id: 7, name: 'Fern' };

/** Part of the message of an error for a response that cannot come from the service. */
const UNEXPECTED = /is not that of a Plant Store/;

describe('an error body that no Plant Store sends', () => {
  for (const code of ['40000.5', '"40000"', '40100', '400', '4e400', 'null']) {
    test(`400 with the code ${code} → rejected without a code`, async (t) => {
      const url = await serve(t, (_request, response) =>
        response.writeHead(400).end(`{"error":${code},"message":"wrong"}`),
      );
      const client = createClient({ url, token: 'secret' });
      await assert.rejects(client.createPlant(FERN), { message: UNEXPECTED, status: 400, code: undefined });
    });
  }
});

for (const status of [300, 304]) {
  test(`${status}, which is no redirect → rejected as the response of another program`, async (t) => {
    const url = await serve(t, (_request, response) =>
      response.writeHead(status, { etag: '"1"' }).end(`{"error":${status}00,"message":"wrong"}`),
    );
    const client = createClient({ url, token: 'secret' });
    const rejection = { message: UNEXPECTED, status, code: undefined };
    await assert.rejects(Array.fromAsync(client.listPlants()), { ...rejection, outcomeUnknown: false });
    await assert.rejects(client.createPlant(FERN), rejection);
    await assert.rejects(client.deletePlant(7), rejection);
  });
}

for (const [status, outcomeUnknown] of [
  [499, false],
  [500, true],
] as const) {
  test(`${status} of a proxy to a creation → the outcome is ${outcomeUnknown ? 'unknown' : 'known'}`, async (t) => {
    const url = await serve(t, (_request, response) => response.writeHead(status).end('<h1>Sorry</h1>'));
    const client = createClient({ url, token: 'secret', retries: 0 });
    await assert.rejects(client.createPlant(FERN), { status, outcomeUnknown });
  });
}

for (const status of [201, 202, 203, 206]) {
  test(`${status} with valid bodies → rejected: only 200 creates and lists`, async (t) => {
    const url = await serve(t, ({ method }, response) =>
      response.writeHead(status).end(method === 'POST' ? '{"name":"Fern"}' : '[{"name":"Fern"}]'),
    );
    const client = createClient({ url, token: 'secret' });
    const rejection = { message: UNEXPECTED, status, outcomeUnknown: true };
    await assert.rejects(client.createPlant(FERN), rejection);
    await assert.rejects(Array.fromAsync(client.listPlants()), rejection);
  });
}

for (const body of [
  '',
  'null',
  '"Fern"',
  '[{"name":"Fern"}]',
  '{}',
  '{"name":7}',
  '{"name":"","tag":null}',
]) {
  test(`200 with the body ${body} to a creation → rejected: it is no plant`, async (t) => {
    const url = await serve(t, (_request, response) => response.end(body));
    const client = createClient({ url, token: 'secret' });
    const rejection = { message: UNEXPECTED, status: 200, outcomeUnknown: true };
    await assert.rejects(client.createPlant(FERN), rejection);
  });
}

/** Resolves to a response without a web stream, as node-fetch does. */
const withoutStream: Fetch = async (url, request) => {
  const response = await fetch(url, request);
  const { status, headers } = response;
  const read = { text: () => response.text(), arrayBuffer: () => response.arrayBuffer() };
  return { status, headers, body: Readable.from([]), ...read };
};

test('response without a body, whose arrayBuffer does not work → its text is read', async (t) => {
  const url = await serve(t, (_request, response) => response.end('[{"name":"Fern"}]'));
  const client = createClient({
    url,
    token: 'secret',
    fetch: async (...request) => {
      const response = await fetch(...request);
      const { status, headers } = response;
      const arrayBuffer = () => Promise.reject(new Error('not implemented'));
      return { status, headers, text: () => response.text(), arrayBuffer };
    },
  });
  assert.deepEqual(await list(client), [{ name: 'Fern' }]);
});

for (const [title, bytes] of [
  ['a byte that is no UTF-8', 'a\xff'],
  ['the begin of a character', '\xe2\x82'],
  ['a surrogate', '\xed\xa0\x80'],
] as const) {
  test(`200 with ${title} in a name → rejected, not replaced`, async (t) => {
    const url = await serve(t, ({ method }, response) => {
      const plant = `{"name":"${bytes}"}`;
      response.end(Buffer.from(method === 'POST' ? plant : `[${plant}]`, 'latin1'));
    });
    const rejection = { message: /its body begins with ".*name.*\ufffd/, status: 200, outcomeUnknown: true };
    for (const send of [undefined, withoutStream]) {
      const client = createClient({ url, token: 'secret', fetch: send });
      await assert.rejects(client.createPlant(FERN), rejection);
      await assert.rejects(list(client), rejection);
    }
  });

  test(`400 with ${title} in the message → an error of the service with U+FFFD`, async (t) => {
    const url = await serve(t, (_request, response) =>
      response.writeHead(400).end(Buffer.from(`{"error":40000,"message":"${bytes}"}`, 'latin1')),
    );
    for (const send of [undefined, withoutStream]) {
      const client = createClient({ url, token: 'secret', fetch: send });
      await assert.rejects(create(client), { code: 40000, message: /\ufffd$/ });
    }
  });
}

test('a page in pieces that cut characters → listed', async (t) => {
  const plants = [{ name: 'Café 🌿', tag: '\ufffd\ufeff' }];
  const url = await serve(t, (_request, response) => {
    pipeline(Readable.from(splitBytes(JSON.stringify(plants))), response).catch(() => undefined);
  });
  assert.deepEqual(await list(createClient({ url, token: 'secret' })), plants);
});

/** Gives a byte in each event-loop iteration. */
async function* splitBytes(text: string): AsyncGenerator<Buffer, void> {
  for (const byte of Buffer.from(text)) {
    yield Buffer.of(byte);
    await setImmediate();
  }
}

const SPACES = Buffer.alloc(2 ** 20, ' ');

describe('a body without an end', () => {
  for (const [title, status, headers, chunk, call, limit] of [
    ['to a creation', 200, {}, SPACES, create, String(64 * 1024 + 6 * '{"id":7,"name":"Fern"}'.length)],
    ['to a list, compressed', 200, { 'content-encoding': 'gzip' }, gzipSync(SPACES), list, '16777216'],
    ['of an error', 400, {}, SPACES, remove, '65536'],
    [
      'of an error to a list, compressed',
      404,
      { 'content-encoding': 'gzip' },
      gzipSync(SPACES),
      list,
      '65536',
    ],
    ['to a deletion', 200, {}, SPACES, remove, '65536'],
  ] as const) {
    test(`${title} → rejected at the limit, and the connection is closed`, async (t) => {
      const { url, ended } = await serveEndless(t, status, headers, chunk);
      const hint =
        status === 200 && call === list ? 'raise the option maxBodyBytes' : 'is the option url right';
      const message = new RegExp(`its body exceeds ${limit} bytes and begins with "( {100})"; ${hint}`);
      const client = createClient({ url, token: 'secret', timeoutMs: 60_000 });
      await assert.rejects(call(client), { name: 'PlantStoreError', message, status, code: undefined });
      await ended;
    });
  }

  for (const status of [302, 307]) {
    test(`of a redirect with ${status} → not read, and the connection is closed`, async (t) => {
      const { url, ended } = await serveEndless(t, status, { location: '/elsewhere' }, SPACES);
      const client = createClient({ url, token: 'secret', timeoutMs: 60_000 });
      await assert.rejects(create(client), { message: /was redirected to \/elsewhere/, status });
      await ended;
    });
  }
});

test('a message of the service that has 2,000 characters → cut after 1,000, and no half of a pair stays', async (t) => {
  const message = `${'a'.repeat(999)}\u{1f33f}${'b'.repeat(1_000)}`;
  const url = await serve(t, (_request, response) =>
    response.writeHead(400).end(JSON.stringify({ error: 40000, message })),
  );
  const expected = { code: 40000, message: `${'a'.repeat(999)}\ufffd` };
  await assert.rejects(createClient({ url, token: 'secret' }).createPlant(FERN), expected);
});

test('a created plant of text that a proxy escapes → accepted', async (t) => {
  const name = 'ä'.repeat(100_000);
  const url = await serve(t, (_request, response) =>
    response.end(`{"name":"${String.raw`\u00e4`.repeat(100_000)}"}`),
  );
  assert.deepEqual((await createClient({ url, token: 'secret' }).createPlant({ id: 7, name })).plant, {
    name,
  });
});

describe('a page of 8 MiB and a plant imported as a line of 32 MiB', () => {
  const plants = [{ name: 'a'.repeat(8 * 2 ** 20) }, { name: 'ä'.repeat(16 * 2 ** 20) }];
  const body = JSON.stringify(plants);

  for (const maxBodyBytes of [Buffer.byteLength(body), undefined, Buffer.byteLength(body) - 1]) {
    const isListed = maxBodyBytes === Buffer.byteLength(body);
    test(`with maxBodyBytes: ${maxBodyBytes} → ${isListed ? 'listed' : 'rejected'}`, async (t) => {
      const url = await serve(t, (_request, response) => response.end(body));
      const client = createClient({ url, token: 'secret', timeoutMs: 60_000, maxBodyBytes });
      if (isListed) assert.ok(isDeepStrictEqual(await list(client), plants));
      else await assert.rejects(list(client), { message: /raise the option maxBodyBytes/, status: 200 });
    });
  }
});

/** Serves a body without an end. `ended` resolves when the client has closed the connection. */
async function serveEndless(
  t: TestContext,
  status: number,
  headers: OutgoingHttpHeaders,
  chunk: Buffer,
): Promise<{ url: string; ended: Promise<void> }> {
  const sent = Promise.withResolvers<void>();
  const url = await serve(t, (_request, response) => {
    response.writeHead(status, headers);
    pipeline(Readable.from(endless(chunk)), response).then(sent.resolve, sent.reject);
  });
  return { url, ended: assert.rejects(sent.promise, { code: 'ERR_STREAM_PREMATURE_CLOSE' }) };
}

function* endless(chunk: Buffer): Generator<Buffer, never> {
  for (;;) yield chunk;
}

function create(client: Client): Promise<unknown> {
  return client.createPlant(FERN);
}

function list(client: Client): Promise<unknown> {
  return Array.fromAsync(client.listPlants());
}

function remove(client: Client): Promise<unknown> {
  return client.deletePlant(7);
}
