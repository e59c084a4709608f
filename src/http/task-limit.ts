import { ApiError } from '../api-errors.ts';
import { afterRunning } from '../running-time.ts';
import { RETRY_SOON } from './error-response.ts';

/** Max milliseconds that a task is queued. */
export const QUEUE_TIMEOUT_MS = 30_000;

/**
 * Returns a function that runs up to `limit` concurrent tasks and queues further ones. Owners of queued tasks take
 * turns; tasks without an owner share one queue. The function rejects with an ApiError (50301) if a task is still
 * queued after QUEUE_TIMEOUT_MS.
 */
export function createTaskLimit(limit: number): <T>(work: () => Promise<T>, owner?: string) => Promise<T> {
  /** Functions that start the queued tasks of each owner. The first owner in the map is next. */
  const queues = new Map<string | undefined, Set<() => void>>();
  let running = 0;

  async function wait(owner: string | undefined): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const cancelTimeout = afterRunning(QUEUE_TIMEOUT_MS, () => {
      const queue = queues.get(owner);
      queue?.delete(resolve);
      if (queue?.size === 0) queues.delete(owner);
      reject(new ApiError(50301, 'the request was queued for too long; retry later', RETRY_SOON));
    });
    const queue = queues.get(owner);
    if (queue === undefined) queues.set(owner, new Set([resolve]));
    else queue.add(resolve);
    await promise.finally(cancelTimeout);
  }

  /** Removes the next task from its queue, and moves its owner to the end of the map. */
  function takeNext(): (() => void) | undefined {
    const [first] = queues;
    if (first === undefined) return undefined;
    const [owner, queue] = first;
    const [next] = queue;
    queues.delete(owner);
    if (next !== undefined) queue.delete(next);
    if (queue.size > 0) queues.set(owner, queue);
    return next;
  }

  return async (work, owner) => {
    if (running >= limit) await wait(owner);
    else running += 1;
    try {
      return await work();
    } finally {
      const next = takeNext();
      if (next === undefined) running -= 1;
      else next();
    }
  };
}
