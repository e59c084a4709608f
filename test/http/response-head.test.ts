import assert from 'node:assert/strict';
import { test } from 'node:test';
import { renderHead } from '../../src/http/response-head.ts';

const JSON_TYPE = { 'content-type': 'application/json', 'content-length': '2' };

function linesOf(status: number, headers: object): readonly string[] | undefined {
  return renderHead(status, '', headers)
    ?.replace(/^Date: \w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT$/m, 'Date: …')
    .split('\r\n');
}

test('head of a response with a length → status line, headers in the documented case, date, empty line', () => {
  const end = ['Date: …', 'Connection: keep-alive', '', ''];
  assert.deepEqual(linesOf(200, JSON_TYPE), [
    'HTTP/1.1 200 OK',
    'Content-Type: application/json',
    'Content-Length: 2',
    ...end,
  ]);
  assert.deepEqual(linesOf(204, {}), ['HTTP/1.1 204 No Content', ...end]);
});

test('unknown status → the reason that Node sends', () => {
  assert.equal(linesOf(299, JSON_TYPE)?.[0], 'HTTP/1.1 299 unknown');
});

test('head whose header changed → the new value', () => {
  for (const id of ['a-1', 'a-2', 'a-2', 'a-1'])
    assert.match(
      renderHead(204, '', { 'x-request-id': id }) ?? '',
      new RegExp(`\r\nX-Request-Id: ${id}\r\n`),
    );
});

test('head that Node must render or reject → undefined', () => {
  for (const headers of [
    {},
    { 'content-type': 'application/json' },
    { ...JSON_TYPE, connection: 'close' },
    { ...JSON_TYPE, 'transfer-encoding': 'chunked' },
    { ...JSON_TYPE, link: 'a\r\nSet-Cookie: b' },
    { ...JSON_TYPE, link: 'ж' },
    { ...JSON_TYPE, link: ['a', 'b'] },
  ])
    assert.equal(renderHead(200, '', headers), undefined, JSON.stringify(headers));
});
