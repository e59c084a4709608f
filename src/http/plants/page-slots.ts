import { ApiError } from '../../api-errors.ts';
import { RETRY_SOON } from '../error-response.ts';

/**
 * Max milliseconds that a task waits in the queue of {@link createGate}, the limiter for concurrent tasks.
 */
const GATE_WAIT_MS = 30_000;

/**
 * Returns a function that runs up to `limit` tasks at once and queues further tasks. The function rejects with
 * an ApiError (50301) if a task is still queued after GATE_WAIT_MS.
 */
export function createGate(limit: number): <T>(work: () => Promise<T>) => Promise<T> {
  /** Queued tasks, in the order of their arrival. Each entry is a function that starts its task. */
  const queue = new Set<() => void>();
  let running = 0;

  async function wait(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => {
      queue.delete(resolve);
      reject(new ApiError(50301, 'the request has waited for its turn too long; retry later', RETRY_SOON));
    }, GATE_WAIT_MS);
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

export type WaitForPageSlot = () => Promise<void>;

/**
 * Max pages that all lists together read in one event-loop iteration. A page takes some tenths of a millisecond, one of
 * long plants some milliseconds. More pages would delay new connections: Node accepts only one in each iteration.
 */
const MAX_PAGES_PER_ITERATION = 2;

/** Limits how many lists read a page in one event-loop iteration, so that other requests run in between. */
export function createPageSlots(): WaitForPageSlot {
  const waiting: (() => void)[] = [];

  function admitNext(): void {
    for (const go of waiting.splice(0, MAX_PAGES_PER_ITERATION)) go();
    if (waiting.length > 0) setImmediate(admitNext);
  }

  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === 1) setImmediate(admitNext);
    });
}
