import assert from 'node:assert/strict';
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { type ApiError, ShareExceeded } from '../../src/api-errors.ts';
import { BatchedResponse } from '../../src/http/batched-response.ts';
import { ClientGone } from '../../src/http/error-response.ts';
import {
  BEGUN_WAIT_MS,
  MEMORY_PER_BYTE,
  SendBufferLimit,
  WAIT_MS,
} from '../../src/http/send-buffer-limit.ts';
import { mockRunningClock } from '../support/running-clock.ts';

const LIMIT = 1_000;
const HALF = LIMIT / 2 / MEMORY_PER_BYTE;

function openResponse(): BatchedResponse {
  return new BatchedResponse(new IncomingMessage(new Socket()));
}

function assertAllFree(limit: SendBufferLimit): void {
  const held = limit.open(openResponse(), 'bob');
  held.take(2 * HALF);
  assert.throws(() => held.take(1), { code: 50301 });
  held.release(2 * HALF);
}

test('memory above the limit → 50301; the memory of a closed response is free', () => {
  const limit = new SendBufferLimit(LIMIT, 0.75);
  const [first, second, third] = [openResponse(), openResponse(), openResponse()];
  const held = limit.open(first, 'alice');
  held.take(HALF);
  limit.open(third, 'carol').take(HALF);
  assert.throws(
    () => limit.open(second, 'bob').take(1),
    (error: unknown) => !(error instanceof ShareExceeded),
  );
  held.release(HALF);
  limit.open(second, 'bob').take(HALF);
  for (const response of [first, second, third]) response.emit('close');
  assertAllFree(limit);
});

test('owner at its share, and the total limit reached → the error of the share', () => {
  const limit = new SendBufferLimit(LIMIT, 0.75);
  limit.open(openResponse(), 'alice').take(1.4 * HALF);
  assert.throws(() => limit.open(openResponse(), 'alice').take(HALF), ShareExceeded);
});

test('owner at its share → waits or gets 50301, and others pass; its first response may be larger', async () => {
  const limit = new SendBufferLimit(LIMIT, 0.75);
  const [first, second, other] = [openResponse(), openResponse(), openResponse()];
  limit.open(first, 'alice').take(1.8 * HALF);
  assert.throws(() => limit.open(openResponse(), 'alice').take(0.1 * HALF), ShareExceeded);
  let isGranted = false;
  const waiting = limit
    .open(second, 'alice')
    .reserve(0.1 * HALF)
    .then(() => {
      isGranted = true;
    });
  await limit.open(other, 'bob').reserve(0.2 * HALF);
  assert.equal(isGranted, false);
  first.emit('close');
  await waiting;
  for (const response of [second, other]) response.emit('close');
  assertAllFree(limit);
});

test('all responses of an owner wait for more → the first gets it, above the share', async () => {
  const limit = new SendBufferLimit(LIMIT, 0.75);
  const responses = [openResponse(), openResponse()];
  const held = responses.map((response) => limit.open(response, 'alice'));
  for (const one of held) await one.reserve(0.6 * HALF);
  const [first, second] = held.map((one) => one.reserve(0.4 * HALF));
  await first;
  responses[0]?.emit('close');
  await second;
  responses[1]?.emit('close');
  assertAllFree(limit);
});

test('all responses of an owner wait and hold only memory that they took → the first gets more, above the share', async () => {
  const limit = new SendBufferLimit(LIMIT, 0.75);
  const responses = [openResponse(), openResponse()];
  const held = responses.map((response) => limit.open(response, 'alice'));
  for (const one of held) one.take(0.1 * HALF);
  const [first, second] = held.map((one) => one.reserve(2 * HALF));
  await first;
  responses[0]?.emit('close');
  await second;
  responses[1]?.emit('close');
  assertAllFree(limit);
});

test('responses of an owner at its share that wait for others → no further one gets memory', async () => {
  const limit = new SendBufferLimit(LIMIT, 0.75);
  const [first, second] = [openResponse(), openResponse()];
  const held = limit.open(first, 'alice');
  await held.reserve(1.4 * HALF);
  const gate = Promise.withResolvers<never>();
  const paused = held.waitFor(() => gate.promise, assert.fail);
  const waiting = limit.open(second, 'alice').reserve(0.3 * HALF);
  limit.open(openResponse(), 'bob').take(0.5 * HALF);
  second.emit('close');
  await assert.rejects(waiting, ClientGone);
  gate.reject(new ClientGone());
  await assert.rejects(paused, ClientGone);
});

test('one that holds nothing waits before one that has begun → the begun one gets memory', async () => {
  const limit = new SendBufferLimit(LIMIT, 0.75);
  const [begun, other] = [openResponse(), openResponse()];
  Object.defineProperty(begun, 'headersSent', { value: true });
  const held = limit.open(begun, 'alice');
  held.take(0.1 * HALF);
  const waiting = limit.open(other, 'alice').reserve(1.5 * HALF);
  await held.reserve(1.5 * HALF);
  other.emit('close');
  await assert.rejects(waiting, ClientGone);
});

test('response already closed → takes no memory', async () => {
  const limit = new SendBufferLimit(LIMIT, 0.75);
  const response = openResponse();
  const held = limit.open(response, 'alice');
  held.take(HALF);
  response.destroy();
  response.emit('close');
  for (const one of [held, limit.open(response, 'alice')]) {
    one.take(HALF);
    one.release(HALF);
    await assert.rejects(one.reserve(HALF), ClientGone);
  }
  assertAllFree(limit);
});

test('response closed while it waits, or just after its wait → ClientGone, and its memory is free', async () => {
  const limit = new SendBufferLimit(LIMIT, 0.75);
  for (const isGranted of [false, true]) {
    const response = openResponse();
    const held = limit.open(openResponse(), 'bob');
    held.take(2 * HALF);
    const holder = openResponse();
    const released = limit.open(holder, 'alice').reserve(1);
    await released;
    const waiting = limit.open(response, 'alice').reserve(HALF);
    if (isGranted) held.release(2 * HALF);
    response.emit('close');
    await assert.rejects(waiting, ClientGone);
    holder.emit('close');
    if (!isGranted) held.release(2 * HALF);
    assertAllFree(limit);
  }
});

test('those that hold memory wait for more or are paused → the first that waits gets it, before new ones', async () => {
  const limit = new SendBufferLimit(LIMIT, 1);
  const responses = [openResponse(), openResponse(), openResponse()];
  const [paused, growing, fresh] = responses.map((response, index) => limit.open(response, `owner ${index}`));
  assert.ok(paused !== undefined && growing !== undefined && fresh !== undefined);
  for (const one of [paused, growing]) await one.reserve(0.9 * HALF);
  const granted: string[] = [];
  const newcomer = fresh.reserve(HALF).then(() => granted.push('new'));
  const more = growing.reserve(HALF).then(() => granted.push('more'));
  const free = Promise.withResolvers<void>();
  const gate = async <T>(work: () => Promise<T>): Promise<T> => free.promise.then(work);
  const done = paused.waitFor(gate, async () => 'done');
  await more;
  assert.deepEqual(granted, ['more']);
  free.resolve();
  assert.equal(await done, 'done');
  responses[1]?.emit('close');
  await newcomer;
  for (const response of [responses[0], responses[2]]) response?.emit('close');
  assertAllFree(limit);
});

test('no memory becomes free → 50301 after 5 s, or after 30 s once the response has begun', async (t) => {
  const clock = mockRunningClock(t);
  for (const [isBegun, seconds] of [
    [false, 5],
    [true, 30],
  ] as const) {
    const limit = new SendBufferLimit(LIMIT, 1);
    await limit.open(openResponse(), 'bob').reserve(2 * HALF);
    const response = openResponse();
    Object.defineProperty(response, 'headersSent', { value: isBegun });
    let code: unknown;
    limit
      .open(response, 'alice')
      .reserve(HALF)
      .catch((error: ApiError) => {
        code = error.code;
      });
    clock.run(seconds * 1_000 - 1);
    await setImmediate();
    assert.equal(code, undefined, `after almost ${seconds} s`);
    clock.run(1);
    await setImmediate();
    assert.equal(code, 50301, `after ${seconds} s`);
  }
});

test('process suspended for longer than the timeout → the response still waits, and gets memory', async (t) => {
  const clock = mockRunningClock(t);
  const limit = new SendBufferLimit(LIMIT, 1);
  const other = openResponse();
  await limit.open(other, 'bob').reserve(2 * HALF);
  const waiting = limit.open(openResponse(), 'alice').reserve(HALF);
  clock.run(WAIT_MS / 2);
  clock.suspend(10 * WAIT_MS);
  other.emit('close');
  await waiting;
});

test('first that waits leaves or times out → the next gets memory that was too little for the first', async (t) => {
  const clock = mockRunningClock(t);
  for (const [end, error] of [
    [(response: BatchedResponse) => response.emit('close'), ClientGone],
    [() => clock.run(WAIT_MS), { code: 50301 }],
  ] as const) {
    const limit = new SendBufferLimit(LIMIT, 1);
    const [holder, first, next] = [openResponse(), openResponse(), openResponse()];
    await limit.open(holder, 'bob').reserve(HALF);
    const tooMuch = assert.rejects(limit.open(first, 'alice').reserve(1.5 * HALF), error);
    // Begun, so that it waits for longer.
    Object.defineProperty(next, 'headersSent', { value: true });
    const enough = limit.open(next, 'carol').reserve(HALF);
    end(first);
    await tooMuch;
    clock.run(BEGUN_WAIT_MS);
    await enough;
    for (const response of [holder, next]) response.emit('close');
    assertAllFree(limit);
  }
});

test('response that got memory waits for more → its timeout begins again', async (t) => {
  const clock = mockRunningClock(t);
  const limit = new SendBufferLimit(LIMIT, 1);
  const other = openResponse();
  await limit.open(other, 'bob').reserve(HALF);
  const held = limit.open(openResponse(), 'alice');
  await held.reserve(HALF);
  clock.run(4_000);
  const more = held.reserve(HALF);
  clock.run(2_000);
  other.emit('close');
  await more;
});

test('paused response closes → its memory is free, and it no longer counts as paused', async () => {
  const limit = new SendBufferLimit(LIMIT, 1);
  const [closed, other] = [openResponse(), openResponse()];
  const paused = limit.open(closed, 'alice');
  await paused.reserve(HALF);
  const gate = Promise.withResolvers<never>();
  const ended = paused.waitFor(() => gate.promise, assert.fail);
  closed.emit('close');
  const held = limit.open(other, 'bob');
  await held.reserve(HALF);
  await held.reserve(2 * HALF);
  gate.reject(new ClientGone());
  await assert.rejects(ended, ClientGone);
  other.emit('close');
  assertAllFree(limit);
});

test('gate rejects a paused response → it no longer counts as paused', async () => {
  const limit = new SendBufferLimit(LIMIT, 1);
  const [rejected, other] = [openResponse(), openResponse()];
  const paused = limit.open(rejected, 'alice');
  await paused.reserve(HALF);
  const rejecting = paused.waitFor(() => Promise.reject(new ClientGone()), assert.fail);
  await assert.rejects(rejecting, ClientGone);
  const held = limit.open(other, 'bob');
  await held.reserve(HALF);
  let isGranted = false;
  const more = held.reserve(HALF).then(() => {
    isGranted = true;
  });
  await setImmediate();
  assert.equal(isGranted, false);
  rejected.emit('close');
  await more;
  other.emit('close');
  assertAllFree(limit);
});
