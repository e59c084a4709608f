import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { sqlite } from './support/engines.ts';
import { startService } from './support/service.ts';

test('graceful stop without a delay → new connections are not accepted from that moment', async (t) => {
  const service = await startService(t, await sqlite.freshUrl(t));
  const stopped = service.close('gracefully');
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
  const outcome = await new Promise((resolve) => {
    socket.once('connect', () => resolve('connected'));
    socket.once('error', resolve);
  });
  socket.destroy();
  assert.equal(Reflect.get(Object(outcome), 'code'), 'ECONNREFUSED');
  await stopped;
});
