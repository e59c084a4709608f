import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { gzipSync } from 'node:zlib';
import { type Client, createClient } from '../../client/src/client.ts';
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

const SPACES = Buffer.alloc(2 ** 20, ' ');

describe('a body without an end', () => {
  for (const [title, status, headers, chunk, call] of [
    ['to a creation', 200, {}, SPACES, create],
    ['to a list, compressed', 200, { 'content-encoding': 'gzip' }, gzipSync(SPACES), list],
    ['of an error', 400, {}, SPACES, remove],
  ] as const) {
    test(`${title} → rejected at the limit, and the connection is closed`, async (t) => {
      const sent = Promise.withResolvers<void>();
      const url = await serve(t, (_request, response) => {
        response.writeHead(status, headers);
        pipeline(Readable.from(endless(chunk)), response).then(sent.resolve, sent.reject);
      });
      const ended = assert.rejects(sent.promise, { code: 'ERR_STREAM_PREMATURE_CLOSE' });
      const client = createClient({ url, token: 'secret', timeoutMs: 60_000 });
      const message = /its body exceeds 256 MiB and begins with "( {100})"; is the option url right\?$/;
      await assert.rejects(call(client), { name: 'PlantStoreError', message, status, code: undefined });
      await ended;
    });
  }
});

test('a page of 8 MiB and a plant imported as a line of 32 MiB → listed', async (t) => {
  const plants = [{ name: 'a'.repeat(8 * 2 ** 20) }, { name: 'ä'.repeat(16 * 2 ** 20) }];
  const url = await serve(t, (_request, response) => response.end(JSON.stringify(plants)));
  const client = createClient({ url, token: 'secret', timeoutMs: 60_000 });
  assert.ok(isDeepStrictEqual(await list(client), plants));
});

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
