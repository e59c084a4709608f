import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { describeFuzz, fuzz, fuzzService } from '../../long/fuzz.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { serve } from '../../support/servers/stub-server.ts';

describe('random requests', () => {
  it('3,000 requests → each gets a response, none a 5xx', async (t) => {
    const summary = await fuzzService({ requests: 3_000, connections: 8, seed: 1, withinMs: PATIENCE_MS });
    for (const line of describeFuzz(summary)) t.diagnostic(line);
    assert.deepEqual(summary.failures, []);
    assert.equal(summary.requests, 3_000);
    for (const status of [200, 204, 400, 401, 403, 404, 405, 415]) {
      assert.ok((summary.statuses.get(status) ?? 0) > 0, `nothing was answered by ${status}`);
    }
  });

  for (const { name, answer, withinMs, found } of [
    {
      name: 'answers one kind of body with 500',
      answer: (body: string) => (body.includes('\\') ? 500 : 204),
      withinMs: PATIENCE_MS,
      found: /500.*\n.*\\\\.*\n {2}again: --seed \d+ --path \d/,
    },
    {
      name: 'never answers one kind of body',
      answer: (body: string) => (body.includes('[') ? undefined : 204),
      withinMs: 2_000,
      found: /no data within 2000 ms\n.*\[.*\n {2}again: --seed \d+ --path \d/,
    },
  ]) {
    it(`detects a service that ${name}`, async (t) => {
      const url = await serve(t, (request, response) => {
        let body = '';
        request.setEncoding('latin1').on('data', (text: string) => {
          body += text;
        });
        request.on('end', () => {
          const status = answer(body);
          if (status !== undefined) response.writeHead(status, { 'content-length': 0 }).end();
        });
      });
      const { failures } = await fuzz({
        url,
        tokens: ['x'],
        requests: 2_000,
        connections: 1,
        seed: 1,
        withinMs,
      });
      assert.equal(failures.length, 1);
      assert.match(failures[0] ?? '', found);
    });
  }
});
