/**
 * Time budget for handlers in one event-loop iteration, in milliseconds. When it is used up, further requests
 * are queued.
 */
export const HANDLER_BUDGET_MS = 5;
/** Max queued requests that start in one event-loop iteration. */
const MAX_STARTED = 64;

/**
 * Returns undefined if a request of this group may run immediately. Otherwise returns a promise that resolves
 * when the request may run. A group is an owner, an address or a network. Groups take turns. Requests without a group
 * share one queue.
 */
export type WaitForLoopBudget = (group: string | undefined) => Promise<void> | undefined;

/**
 * Limits the time of requests per event-loop iteration to `budgetMs`, and queues further ones. For handlers, the
 * concurrency limit counts queued requests, so it can reject requests during an overload. Without this queue, requests
 * would wait unread in sockets, where the limit cannot count them.
 */
export function createLoopBudget(budgetMs = HANDLER_BUDGET_MS): WaitForLoopBudget {
  /** Queued requests of each group. The first group in the map is next. */
  const queues = new Map<string | undefined, (() => void)[]>();
  let began: number | undefined;
  // Doubles while iterations stay within the budget, and halves otherwise.
  let startLimit = 1;

  function begin(now: number): void {
    began = now;
    setImmediate(end, now);
  }

  function end(since: number): void {
    const now = performance.now();
    startLimit =
      now - since < budgetMs ? Math.min(startLimit * 2, MAX_STARTED) : Math.max(1, startLimit >> 1);
    began = undefined;
    if (queues.size === 0) return;
    begin(now);
    startQueued();
  }

  /** Starts up to `startLimit` requests. A group that is added to the map again is visited again. */
  function startQueued(): void {
    let started = 0;
    for (const [group, queue] of queues) {
      if (started === startLimit) return;
      started += 1;
      queues.delete(group);
      queue.shift()?.();
      if (queue.length > 0) queues.set(group, queue);
    }
  }

  function enqueue(group: string | undefined): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const queue = queues.get(group);
    if (queue === undefined) queues.set(group, [resolve]);
    else queue.push(resolve);
    return promise;
  }

  return (group) => {
    const now = performance.now();
    if (began === undefined) begin(now);
    else if (queues.size > 0 || now - began > budgetMs) return enqueue(group);
    return undefined;
  };
}
