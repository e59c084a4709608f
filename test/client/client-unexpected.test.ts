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
