import assert from 'node:assert/strict';
import { Socket } from 'node:net';
import { test } from 'node:test';
import { destroyLater, LINGER_MS } from '../../../src/http/protocol/connection/linger.ts';

test('client closes the connection in time → no timer keeps the socket', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const [closed, open] = [new Socket(), new Socket()];
  const destroyed = [closed, open].map((socket) => {
    destroyLater(socket);
    return t.mock.method(socket, 'destroy', () => socket).mock;
  });
  closed.emit('close');
  t.mock.timers.tick(LINGER_MS);
  assert.deepEqual(
    destroyed.map((mock) => mock.callCount()),
    [0, 1],
  );
});
