import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { BatchedResponse } from '../../src/http/batched-response.ts';
import { renderCommon } from '../../src/http/response-head.ts';
import { listenOnFreePort } from '../support/servers/free-port.ts';

for (const body of ['Alder', '🌱', '']) {
  test(`response with the body "${body}" → sent whole; then only its head stays in memory`, async (t) => {
    const server = createServer({ ServerResponse: BatchedResponse });
    t.after(() => server.close());
    const port = await listenOnFreePort(server);
    const [answer, [, response]] = await Promise.all([
      fetch(`http://127.0.0.1:${port}/`),
      once(server, 'request').then((both) => {
        const [, toSend] = both;
        assert.ok(toSend instanceof BatchedResponse);
        toSend.setCommonHeaders('id-1', renderCommon({}));
        toSend.writeHead(200, { 'content-length': String(Buffer.byteLength(body)) });
        toSend.end(body);
        return both;
      }),
    ]);
    assert.deepEqual([answer.status, answer.headers.get('x-request-id')], [200, 'id-1']);
    assert.equal(await answer.text(), body);
    assert.ok(response instanceof BatchedResponse);
    assert.match(response._header ?? '', /\r\n\r\n$/);
  });
}
