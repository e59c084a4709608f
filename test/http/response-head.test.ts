import assert from 'node:assert/strict';
import { test } from 'node:test';
import { renderCommon, renderHead } from '../../src/http/response-head.ts';

const COMMON = renderCommon({ 'cache-control': 'no-store' });
const JSON_TYPE = { 'content-type': 'application/json', 'content-length': '2' };

function linesOf(status: number, headers: object): readonly string[] | undefined {
  return renderHead(status, 'id-1', COMMON, headers)
    ?.replace(/^Date: \w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT$/m, 'Date: …')
    .split('\r\n');
}

test('head of a response with a length → status line, headers in the documented case, date, empty line', () => {
  const begin = ['X-Request-Id: id-1', 'Cache-Control: no-store'];
  const end = ['Date: …', 'Connection: keep-alive', '', ''];
  assert.deepEqual(linesOf(200, JSON_TYPE), [
    'HTTP/1.1 200 OK',
    ...begin,
    'Content-Type: application/json',
    'Content-Length: 2',
    ...end,
  ]);
  assert.deepEqual(linesOf(204, {}), ['HTTP/1.1 204 No Content', ...begin, ...end]);
});

test('unknown status → the reason that Node sends', () => {
  assert.equal(linesOf(299, JSON_TYPE)?.[0], 'HTTP/1.1 299 unknown');
});

test('head whose header changed → the new value', () => {
  for (const link of ['<a>', '<b>', '<b>', '<a>'])
    assert.ok(linesOf(204, { link })?.includes(`Link: ${link}`));
});

test('head in a later second → another date', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 5_000 });
  const dateOf = (): string | undefined =>
    /^Date: (.*)\r$/m.exec(renderHead(204, 'id-1', COMMON, {}) ?? '')?.[1];
  assert.equal(dateOf(), 'Thu, 01 Jan 1970 00:00:05 GMT');
  t.mock.timers.tick(1_000);
  assert.equal(dateOf(), 'Thu, 01 Jan 1970 00:00:06 GMT');
});

test('head that Node must render or reject → undefined', () => {
  for (const headers of [
    {},
    { 'content-type': 'application/json' },
    { ...JSON_TYPE, connection: 'close' },
    { ...JSON_TYPE, 'transfer-encoding': 'chunked' },
    { ...JSON_TYPE, link: 'a\r\nSet-Cookie: b' },
    { ...JSON_TYPE, 'cache-control': 'no-cache' },
    { ...JSON_TYPE, link: 'ж' },
    { ...JSON_TYPE, link: ['a', 'b'] },
  ])
    assert.equal(linesOf(200, headers), undefined, JSON.stringify(headers));
});
