import { subscribe } from 'node:diagnostics_channel';
import { getHeapStatistics } from 'node:v8';
import { isMainThread, type Worker } from 'node:worker_threads';

/**
 * Requests per measured slice. A slice has about one garbage collection, and is so short that other processes
 * interrupt few slices.
 */
const SLICE = 1_000;

// Servers preload this module. It answers each message of the parent process with the CPU time and
// allocations of all threads.
if (isMainThread && process.channel !== undefined) {
  const threads = new Set<Worker>();
  let requests = 0;
  let begun = process.cpuUsage();
  let microseconds: number[] = [];
  let allocatedBefore = 0;

  process.on('worker', (worker) => {
    threads.add(worker);
    worker.once('exit', () => threads.delete(worker));
  });
  subscribe('http.server.request.start', () => {
    requests += 1;
    if (requests < SLICE) return;
    const { user, system } = process.cpuUsage(begun);
    microseconds.push((user + system) / SLICE);
    beginSlice();
  });
  process.on('message', async () => {
    const all = await Promise.all([...threads].map((thread) => thread.getHeapStatistics()));
    const allocated = [getHeapStatistics(), ...all].reduce(
      (sum, heap) => sum + heap.total_allocated_bytes,
      0,
    );
    process.send?.({ allocatedBytes: allocated - allocatedBefore, microseconds });
    allocatedBefore = allocated;
    microseconds = [];
    beginSlice();
  });
  process.channel.unref();

  function beginSlice(): void {
    requests = 0;
    begun = process.cpuUsage();
  }
}
