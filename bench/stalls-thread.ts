import { parentPort, workerData } from 'node:worker_threads';

/** What is shorter does not matter to a request of a millisecond. */
const NOTICED_MS = 1;

parentPort?.postMessage(stallsWithin(Number(workerData)));

function stallsWithin(ms: number): readonly number[] {
  const stalls: number[] = [];
  let last = performance.now();
  for (const end = last + ms; last < end; ) {
    const now = performance.now();
    if (now - last >= NOTICED_MS) stalls.push(now - last);
    last = now;
  }
  return stalls;
}
