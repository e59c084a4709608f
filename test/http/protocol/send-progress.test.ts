import assert from 'node:assert/strict';
import { Socket } from 'node:net';
import { test } from 'node:test';
import { SendProgress } from '../../../src/http/protocol/connection/send-progress.ts';

const TIMEOUT = 10;

/** The progress of a client. By default each tick finds the same unsent bytes. */
function observe(): { readonly progress: SendProgress; readonly accept: () => void } {
  let bytesWritten = 0;
  const socket = Object.defineProperties(new Socket(), {
    writableLength: { value: 1 },
    bytesWritten: { get: () => bytesWritten },
  });
  const accept = (): void => {
    bytesWritten += 1;
  };
  return { progress: new SendProgress(socket), accept };
}

test('client that accepted bytes for longer than the timeout, then none for a tick → not stalled', () => {
  const { progress, accept } = observe();
  for (let ticks = 0; ticks < 3 * TIMEOUT; ticks += 1) {
    accept();
    progress.tick();
  }
  for (let ticks = 0; ticks < 2; ticks += 1) {
    progress.tick();
    progress.noteQueue(() => 5, 0);
    assert.ok(progress.confirmedStalledTicks < TIMEOUT);
  }
});

test('send queue that has become shorter → the timeout begins again', () => {
  const { progress } = observe();
  const stallsWith = (queue: number): boolean => {
    progress.tick();
    progress.noteQueue(() => queue, 0);
    return progress.confirmedStalledTicks >= TIMEOUT;
  };
  for (let queue = 3 * TIMEOUT; queue > 0; queue -= 1) assert.equal(stallsWith(queue), false);
  for (let ticks = 2; ticks < TIMEOUT; ticks += 1) assert.equal(stallsWith(1), false);
  assert.equal(stallsWith(1), true);
});

test('first look after the timeout → not stalled, even without a known queue', () => {
  const { progress } = observe();
  for (let ticks = 0; ticks <= TIMEOUT; ticks += 1) progress.tick();
  progress.noteQueue(() => undefined, 0);
  assert.ok(progress.confirmedStalledTicks < TIMEOUT);
  progress.noteQueue(() => undefined, 0);
  assert.ok(progress.confirmedStalledTicks >= TIMEOUT);
});

test('send queue whose read began ticks ago → the client has stalled for that much less', () => {
  const { progress } = observe();
  for (let ticks = 0; ticks < TIMEOUT; ticks += 1) progress.tick();
  for (let looks = 0; looks < 2; looks += 1) progress.noteQueue(() => 5, 2);
  assert.equal(progress.confirmedStalledTicks, TIMEOUT - 2);
});

test('send queue of the same length as before the client accepted bytes → the first look after them does not count', () => {
  const { progress, accept } = observe();
  progress.tick();
  progress.noteQueue(() => 5, 0);
  accept();
  for (let ticks = 0; ticks <= TIMEOUT; ticks += 1) progress.tick();
  progress.noteQueue(() => 5, 0);
  assert.ok(progress.confirmedStalledTicks < TIMEOUT);
  progress.noteQueue(() => 5, 0);
  assert.ok(progress.confirmedStalledTicks >= TIMEOUT);
});
