import assert from 'node:assert/strict';
import { once } from 'node:events';
import http, { get, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { test } from 'node:test';
import { engines, execute, sqlite } from '../support/engines.ts';
import { bearer, startService, type TestService } from '../support/service.ts';
import { create } from '../support/store-setup.ts';

const INTERNAL_MESSAGE = 'rule_of_the_table';

/** More bytes, as plants of 60,000 bytes, than the socket buffers between the service and its client. */
const UNREAD_PLANTS = 220;

/** SQL that makes every creation fail with an internal error. */
const FAULTS: Readonly<Record<string, string>> = {
  sqlite: `CREATE TRIGGER fault BEFORE INSERT ON plants BEGIN SELECT RAISE(ABORT, '${INTERNAL_MESSAGE}'); END`,
  postgres: `ALTER TABLE plants ADD CONSTRAINT ${INTERNAL_MESSAGE} CHECK (id <> 7)`,
};

for (const engine of engines) {
  test(`internal error → 50000 without internals; details in the log, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    const service = await startService(t, url);
    const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
    await execute(url, FAULTS[engine.name] ?? assert.fail(`no fault for ${engine.name}`));
    const init = { method: 'POST', headers, body: '{"id":7,"name":"Fern"}' };
    const answer = await fetch(`${service.url}/plants`, init);
    assert.equal(answer.status, 500);
    assert.equal(answer.headers.get('content-type'), 'application/json');
    assert.equal(answer.headers.get('cache-control'), 'no-store');
    assert.deepEqual(await answer.json(), {
      error: 50000,
      message: 'internal error; the log of the service has details under the request id',
    });
    const requestId = answer.headers.get('x-request-id') ?? assert.fail('no X-Request-Id');
    assert.equal((await fetch(`${service.url}/plants`, { headers })).status, 200, 'lists go on');
    await service.close();
    assertFailed(service, requestId, new RegExp(INTERNAL_MESSAGE));
  });

  test(`internal error in the middle of a list → cut off; details in the log, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    const service = await startService(t, url);
    const headers = bearer(await service.token());
    const name = 'x'.repeat(60_000);
    await Promise.all(
      Array.from({ length: UNREAD_PLANTS }, (_, id) => service.store.write(create(BigInt(id), { name }))),
    );
    const request = get(`${service.url}/plants`, { headers });
    const [answer]: IncomingMessage[] = await once(request, 'response');
    // Gets the error of `answer` too, with Node 24.
    request.on('error', () => undefined);
    assert.equal(answer?.statusCode, 200);
    const old = connect(Number(new URL(service.url).port), '127.0.0.1');
    old.write(`GET /plants HTTP/1.0\r\nAuthorization: ${headers.authorization}\r\n\r\n`);
    await once(old, 'readable');
    const oldEnd = assert.rejects(once(old, 'close'), { code: 'ECONNRESET' });
    await execute(url, 'ALTER TABLE plants RENAME COLUMN tag TO moved_tag');
    old.resume();
    await assert.rejects(Array.fromAsync(answer), { code: 'ECONNRESET' });
    await oldEnd;
    await service.close();
    assertFailed(service, String(answer.headers['x-request-id']), /\btag\b/);
  });
}

test('response that Node rejects → connection closed; details in the log', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  const fault = t.mock.method(http.ServerResponse.prototype, 'end', () => {
    throw new Error(INTERNAL_MESSAGE);
  });
  await assert.rejects(fetch(`${service.url}/openapi.json`), { message: 'fetch failed' });
  fault.mock.restore();
  assert.equal((await fetch(`${service.url}/openapi.json`)).status, 200, 'other responses go on');
  await service.close();
  const [first = ''] = service.logLines.filter((line) => line.includes(INTERNAL_MESSAGE));
  assertFailed(service, JSON.parse(first).requestId, new RegExp(INTERNAL_MESSAGE));
});

/** Checks that the log has the reason and the status of a request that failed with an internal error. */
function assertFailed(service: TestService, requestId: string, reason: RegExp): void {
  const lines = service.logLines
    .map((line) => JSON.parse(line))
    .filter((line) => line.requestId === requestId);
  const failed = lines.find(({ msg }) => msg === 'failed');
  assert.equal(failed?.level, 50);
  assert.match(failed.err.message, reason);
  assert.equal(lines.find(({ msg }) => msg === 'answered')?.status, 500);
}
