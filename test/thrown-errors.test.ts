import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { codeOf, messageOf } from '../src/thrown-errors.ts';

describe('any thrown value', () => {
  test('message → that of an error, else its text', () => {
    assert.equal(messageOf(new TypeError('wrong')), 'wrong');
    assert.deepEqual(
      [messageOf('text'), messageOf(undefined), messageOf({ message: 'no error' })],
      ['text', 'undefined', '[object Object]'],
    );
  });

  test('code → that of an error if it is a text, else empty', () => {
    assert.equal(codeOf(Object.assign(new Error(), { code: 'ENOENT' })), 'ENOENT');
    for (const none of [
      new Error(),
      Object.assign(new Error(), { code: 7 }),
      { code: 'ENOENT' },
      'ENOENT',
      null,
    ])
      assert.equal(codeOf(none), '');
  });
});
