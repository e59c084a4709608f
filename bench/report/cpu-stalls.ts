import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { Watched } from './cpu-stalls-thread.ts';

const LOOK_FOR_MS = 3_000;

/** Stalls of this machine: times in which the machine suspends busy threads. */
interface Stalls {
  /** The longest stall of one thread, in milliseconds. */
  readonly longestMs: number;
  /** Mean share of the time in which a thread was stalled. Only stalls of a millisecond or more count. */
  readonly share: number;
}

/**
 * Runs one thread per core, which polls the clock in a loop. A stall of such a thread would also stall a
 * server.
 */
export async function measureStalls(threads = availableParallelism(), ms = LOOK_FOR_MS): Promise<Stalls> {
  const all = await Promise.all(Array.from({ length: threads }, () => watchByThread(ms)));
  const stalls = all.flatMap((watched) => watched.stalls);
  const lost = stalls.reduce((sum, stall) => sum + stall, 0);
  const watched = all.reduce((sum, one) => sum + one.ms, 0);
  return { longestMs: Math.max(0, ...stalls), share: lost / watched };
}

async function watchByThread(ms: number): Promise<Watched> {
  const thread = new Worker(new URL('./cpu-stalls-thread.ts', import.meta.url), { workerData: ms });
  const [watched]: readonly Watched[] = await once(thread, 'message');
  return watched ?? { stalls: [], ms };
}
