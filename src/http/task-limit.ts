import { ApiError } from '../api-errors.ts';
import { RETRY_SOON } from './error-response.ts';

/** Max milliseconds that a task is queued. */
export const QUEUE_TIMEOUT_MS = 30_000;

/**
 * Returns a function that runs up to `limit` concurrent tasks and queues further ones. The function rejects with
 * an ApiError (50301) if a task is still queued after QUEUE_TIMEOUT_MS.
 */
export function createTaskLimit(limit: number): <T>(work: () => Promise<T>) => Promise<T> {
  /** Queued tasks, in the order of their arrival. Each entry is a function that starts its task. */
  const queue = new Set<() => void>();
  let running = 0;

  async function wait(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => {
      queue.delete(resolve);
      reject(new ApiError(50301, 'the request was queued for too long; retry later', RETRY_SOON));
    }, QUEUE_TIMEOUT_MS);
    queue.add(resolve);
    await promise.finally(() => clearTimeout(timer));
  }

  return async (work) => {
    if (running >= limit) await wait();
    else running += 1;
    try {
      return await work();
    } finally {
      const [next] = queue;
      if (next === undefined) running -= 1;
      else {
        queue.delete(next);
        next();
      }
    }
  };
}
