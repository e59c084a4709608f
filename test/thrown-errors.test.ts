import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type LookupFunction } from 'node:net';
import { describe, test } from 'node:test';
import { codeOf, messageOf } from '../src/thrown-errors.ts';
import { freePort } from './support/servers/free-port.ts';

describe('any thrown value', () => {
  test('message → that of an error, else its text', () => {
    assert.equal(messageOf(new TypeError('wrong')), 'wrong');
    assert.deepEqual(
      [messageOf('text'), messageOf(undefined), messageOf({ message: 'no error' })],
      ['text', 'undefined', '[object Object]'],
    );
  });

  test('message of a connection whose addresses all fail → the message of each', async () => {
    const lookup: LookupFunction = (_, __, done) =>
      done(
        null,
        ['127.0.0.1', '127.0.0.2'].map((address) => ({ address, family: 4 })),
      );
    const port = await freePort();
    const [error] = await once(connect({ host: 'plants.test', port, lookup }), 'error');
    const reasons = [1, 2].map((last) => `connect ECONNREFUSED 127.0.0.${last}:${port}`);
    assert.equal(messageOf(error), reasons.join('; '));
    assert.equal(codeOf(error), 'ECONNREFUSED');
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
