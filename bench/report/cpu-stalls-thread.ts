import { parentPort, workerData } from 'node:worker_threads';

/**
 * Min milliseconds of a stall, in which the machine suspends the thread. Shorter stalls hardly affect a
 * request of one millisecond.
 */
const NOTICED_MS = 1;

/** Stalls of one thread, in milliseconds. */
export interface Watched {
  readonly stalls: readonly number[];
  /** Milliseconds that the thread was watched: longer than requested if a stall delayed the end. */
  readonly ms: number;
}

parentPort?.postMessage(watch(Number(workerData)));

function watch(ms: number): Watched {
  const stalls: number[] = [];
  const begun = performance.now();
  let last = begun;
  while (last < begun + ms) {
    const now = performance.now();
    if (now - last >= NOTICED_MS) stalls.push(now - last);
    last = now;
  }
  return { stalls, ms: last - begun };
}
