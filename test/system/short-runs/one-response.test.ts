import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  brokenRequests,
  effectsOf,
  MATRIX_SIZE,
  plantForMatrix,
  SHORT_TIMEOUT_MS,
  sendBroken,
} from '../../long/one-response.ts';
import { engines } from '../../support/engines.ts';
import { startService } from '../../support/service.ts';

const OWNER = 'alice';

function certificate(kind: 'pem' | 'key'): string {
  return fileURLToPath(new URL(`../../support/certificates/first.${kind}`, import.meta.url));
}

describe('broken requests → one response, then the connection closes; no effect', () => {
  for (const engine of engines) {
    for (const scheme of ['http', 'https'] as const) {
      it(`on ${engine.name}, over ${scheme}`, async (t) => {
        const databaseUrl = await engine.freshUrl(t);
        const service = await startService(t, databaseUrl, {
          headerTimeout: SHORT_TIMEOUT_MS,
          requestTimeout: SHORT_TIMEOUT_MS,
          ...(scheme === 'https' && { tlsCert: certificate('pem'), tlsKey: certificate('key') }),
        });
        const token = await service.token(OWNER);
        await plantForMatrix(databaseUrl, OWNER, MATRIX_SIZE);
        const requests = brokenRequests(token, 0);
        const wrong = await Promise.all(requests.map((request) => sendBroken(service.url, request)));
        assert.deepEqual([...wrong.flat(), ...(await effectsOf(databaseUrl, OWNER, requests))], []);
      });
    }
  }
});
