import assert from 'node:assert/strict';
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { test } from 'node:test';
import { BatchedResponse } from '../../src/http/batched-response.ts';
import { ClientGone } from '../../src/http/operation.ts';
import { MEMORY_PER_BYTE, SendBudget } from '../../src/http/send-buffer-limit.ts';

const LIMIT = 1_000;
const HALF = LIMIT / 2 / MEMORY_PER_BYTE;

function openResponse(): BatchedResponse {
  return new BatchedResponse(new IncomingMessage(new Socket()));
}

function assertAllFree(budget: SendBudget): void {
  budget.take(LIMIT);
  assert.throws(() => budget.take(1), { code: 50301 });
  budget.release(LIMIT, 0);
}

test('memory above the limit → 50301; the memory of a closed response is free', () => {
  const budget = new SendBudget(LIMIT);
  const [first, second] = [openResponse(), openResponse()];
  const held = budget.open(first);
  held.add(HALF);
  held.add(HALF);
  assert.throws(() => budget.open(second).add(1), { code: 50301 });
  held.remove(HALF);
  budget.open(second).add(HALF);
  for (const response of [first, second]) response.emit('close');
  assertAllFree(budget);
});

test('response already closed → takes no memory', async () => {
  const budget = new SendBudget(LIMIT);
  const response = openResponse();
  const held = budget.open(response);
  held.add(HALF);
  response.destroy();
  response.emit('close');
  for (const one of [held, budget.open(response)]) {
    one.add(HALF);
    one.remove(HALF);
    await assert.rejects(one.reserve(HALF), ClientGone);
  }
  assertAllFree(budget);
});

test('response closed while it waits, or just after its wait → ClientGone, and its memory is free', async () => {
  const budget = new SendBudget(LIMIT);
  for (const isGranted of [false, true]) {
    const response = openResponse();
    budget.take(LIMIT);
    const holder = openResponse();
    const released = budget.open(holder).reserve(1);
    await released;
    const waiting = budget.open(response).reserve(HALF);
    if (isGranted) budget.release(LIMIT, 0);
    response.emit('close');
    await assert.rejects(waiting, ClientGone);
    holder.emit('close');
    if (!isGranted) budget.release(LIMIT, 0);
    assertAllFree(budget);
  }
});
