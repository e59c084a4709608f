import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createClient } from '../../client/src/client.ts';
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
