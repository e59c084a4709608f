import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AnsweredRequest, logTo } from '../src/log.ts';

const request: AnsweredRequest = {
  requestId: 'AbC-_9-1z',
  traceId: undefined,
  operation: 'createPlant',
  status: 200,
  ms: 1.25,
  owner: 'alice',
};
const requests: readonly (readonly [what: string, request: AnsweredRequest])[] = [
  ['a request', request],
  ['one of nobody', { ...request, status: 401, owner: undefined }],
  ['one that is traced', { ...request, traceId: '0af7651916cd43dd8448eb211c80319c' }],
  ['one that took no time', { ...request, ms: 0 }],
  ['one that took long', { ...request, ms: 15_000.01 }],
  ['an owner in need of escapes', { ...request, owner: 'https://a.b/ "c\\d"\n\u2028é\u{1f331}' }],
];

for (const [what, one] of requests) {
  test(`the line of ${what} is the one that the log would have written`, (t) => {
    t.mock.timers.enable({ apis: ['Date'], now: 1_763_719_200_123 });
    const lines: string[] = [];
    const { log, answered } = logTo({ write: (line) => void lines.push(line) }, 'info');
    answered(one);
    log.info(one, 'answered');
    assert.equal(lines.length, 2);
    assert.equal(lines[0], lines[1]);
  });
}

test('requests have no lines where the log wants none of their level', () => {
  const lines: string[] = [];
  const { log, answered } = logTo({ write: (line) => void lines.push(line) }, 'warn');
  answered(request);
  log.warn('something');
  assert.equal(lines.length, 1);
});
