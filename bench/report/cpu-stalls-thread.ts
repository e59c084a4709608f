import { parentPort, workerData } from 'node:worker_threads';

/** Min length of a counted stall. A shorter one hardly affects a request that takes a millisecond. */
const NOTICED_MS = 1;

/** In milliseconds. */
export interface Watched {
  readonly stalls: readonly number[];
  /** The measured time. It is longer than the requested time if that time ended during a stall. */
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
