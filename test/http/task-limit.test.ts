import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { createTaskLimit, QUEUE_TIMEOUT_MS } from '../../src/http/task-limit.ts';
import { mockRunningClock } from '../support/running-clock.ts';

describe('a limit of two tasks', () => {
  it('starts a queued task when another one ends, with success or not', async () => {
    const limited = createTaskLimit(2);
    const tasks = Array.from({ length: 4 }, () => Promise.withResolvers<void>());
    const started: number[] = [];
    const ends = tasks.map(({ promise }, index) =>
      limited(() => {
        started.push(index);
        return promise;
      }),
    );
    const settled = Promise.allSettled(ends);
    assert.deepEqual(started, [0, 1]);
    tasks[1]?.reject(new Error('failed'));
    await setImmediate();
    assert.deepEqual(started, [0, 1, 2]);
    tasks[0]?.resolve();
    await setImmediate();
    assert.deepEqual(started, [0, 1, 2, 3]);
    tasks[2]?.resolve();
    tasks[3]?.resolve();
    assert.deepEqual(
      (await settled).map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled', 'fulfilled'],
    );
  });

  it('lets owners take turns when tasks are queued', async () => {
    const limited = createTaskLimit(2);
    const started: string[] = [];
    const run = (owner: string, count: number) =>
      Array.from({ length: count }, (_, index) =>
        limited(async () => {
          started.push(`${owner} ${index}`);
          await setImmediate();
        }, owner),
      );
    await Promise.all([...run('alice', 5), ...run('bob', 2)]);
    assert.deepEqual(started, ['alice 0', 'alice 1', 'alice 2', 'bob 0', 'alice 3', 'bob 1', 'alice 4']);
  });

  it('rejects a task that is queued for too long with 50301, never starts it, and loses no place', async (t) => {
    const clock = mockRunningClock(t);
    const limited = createTaskLimit(2);
    const hanging = Array.from({ length: 2 }, () => Promise.withResolvers<void>());
    const ends = hanging.map(({ promise }) => limited(() => promise));
    const rejected = assert.rejects(
      limited(() => assert.fail('the task was started')),
      { code: 50301, headers: { 'retry-after': '1' } },
    );
    clock.run(QUEUE_TIMEOUT_MS);
    await rejected;
    for (const { resolve } of hanging) resolve();
    await Promise.all(ends);
    assert.equal(await limited(() => limited(async () => 'both are free again')), 'both are free again');
  });

  it('starts the tasks of others after all tasks of an owner were queued for too long', async (t) => {
    const clock = mockRunningClock(t);
    const limited = createTaskLimit(1);
    const first = Promise.withResolvers<void>();
    const end = limited(() => first.promise);
    const rejected = assert.rejects(
      limited(() => assert.fail('the task was started'), 'alice'),
      { code: 50301 },
    );
    clock.run(QUEUE_TIMEOUT_MS / 2);
    let isStarted = false;
    const queued = limited(async () => {
      isStarted = true;
    }, 'bob');
    clock.run(QUEUE_TIMEOUT_MS / 2);
    await rejected;
    first.resolve();
    await end;
    await setImmediate();
    assert.equal(isStarted, true);
    await queued;
  });

  it('keeps a task that was queued while the process was suspended', async (t) => {
    const clock = mockRunningClock(t);
    const limited = createTaskLimit(1);
    const first = Promise.withResolvers<void>();
    const end = limited(() => first.promise);
    const queued = limited(async () => 'started');
    clock.suspend(2 * QUEUE_TIMEOUT_MS);
    first.resolve();
    assert.equal(await queued, 'started');
    await end;
  });

  it('keeps no timer of a queued task that has run', async () => {
    const countTimers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
    const limited = createTaskLimit(2);
    const before = countTimers();
    await Promise.all(Array.from({ length: 8 }, () => limited(() => setImmediate())));
    assert.equal(countTimers(), before);
  });
});
