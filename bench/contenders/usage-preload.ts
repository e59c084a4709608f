import { subscribe } from 'node:diagnostics_channel';
import { GCProfiler, getHeapStatistics } from 'node:v8';
import { BroadcastChannel, isMainThread } from 'node:worker_threads';

/**
 * Requests per measured slice. A slice has about one garbage collection, and is so short that other processes
 * interrupt few slices.
 */
const SLICE = 1_000;

const REPORT = 'report';

/** Carries each request for a report to the other threads, and their allocations back. */
const channel = new BroadcastChannel('allocations');
channel.unref();
let profiler = new GCProfiler();
let usedAfter = getHeapStatistics().used_heap_size;
profiler.start();

// Servers preload this module, in all threads. The main thread answers each message of the parent process with the CPU
// time and allocations of all threads.
if (!isMainThread)
  channel.onmessage = ({ data }: { readonly data: unknown }) => {
    if (data === REPORT) channel.postMessage(takeAllocatedBytes());
  };
else if (process.channel !== undefined) {
  let threads = 0;
  let requests = 0;
  let begun = process.cpuUsage();
  let microseconds: number[] = [];

  process.on('worker', (worker) => {
    threads += 1;
    worker.once('exit', () => {
      threads -= 1;
    });
  });
  subscribe('http.server.request.start', () => {
    requests += 1;
    if (requests < SLICE) return;
    const { user, system } = process.cpuUsage(begun);
    microseconds.push((user + system) / SLICE);
    beginSlice();
  });
  process.on('message', async () => {
    const allocatedBytes = takeAllocatedBytes() + (await takeFromThreads(threads));
    process.send?.({ allocatedBytes, microseconds });
    microseconds = [];
    beginSlice();
  });
  process.channel.unref();

  function beginSlice(): void {
    requests = 0;
    begun = process.cpuUsage();
  }
}

/** Returns the bytes allocated on the heap of this thread since the last call: its growth between garbage collections. */
function takeAllocatedBytes(): number {
  let allocated = 0;
  for (const { beforeGC, afterGC } of profiler.stop().statistics) {
    allocated += beforeGC.heapStatistics.usedHeapSize - usedAfter;
    usedAfter = afterGC.heapStatistics.usedHeapSize;
  }
  const used = getHeapStatistics().used_heap_size;
  allocated += used - usedAfter;
  usedAfter = used;
  profiler = new GCProfiler();
  profiler.start();
  return allocated;
}

/** Resolves to the bytes that so many other threads allocated since the last call. */
async function takeFromThreads(threads: number): Promise<number> {
  if (threads === 0) return 0;
  const { promise, resolve } = Promise.withResolvers<number>();
  let allocated = 0;
  let reports = 0;
  channel.onmessage = ({ data }: { readonly data: unknown }) => {
    allocated += Number(data);
    reports += 1;
    if (reports === threads) resolve(allocated);
  };
  channel.postMessage(REPORT);
  return promise;
}
