import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { Watched } from './cpu-stalls-thread.ts';

const LOOK_FOR_MS = 3_000;

/** How the machine treats threads that want nothing but their core. */
interface Stalls {
  /** The longest time for which one of them stood still, in milliseconds. */
  readonly longestMs: number;
  /** The share of its time for which one stood still, in stalls of a millisecond and more. */
  readonly share: number;
}

/** Keeps each core busy with a thread that looks at the clock: what it misses, a server misses too. */
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
