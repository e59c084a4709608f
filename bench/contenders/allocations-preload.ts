import { getHeapStatistics } from 'node:v8';
import { isMainThread, type Worker } from 'node:worker_threads';

// Preloaded into a server: reports to the parent process, on its request, how much all threads have allocated.
if (isMainThread && process.channel !== undefined) {
  const threads = new Set<Worker>();
  process.on('worker', (worker) => {
    threads.add(worker);
    worker.once('exit', () => threads.delete(worker));
  });
  process.on('message', async () => {
    const all = await Promise.all([...threads].map((thread) => thread.getHeapStatistics()));
    process.send?.([getHeapStatistics(), ...all].reduce((sum, heap) => sum + heap.total_allocated_bytes, 0));
  });
  process.channel.unref();
}
