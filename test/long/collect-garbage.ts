import { isMainThread } from 'node:worker_threads';

// Preloaded into a measured service: from outside, uncollected garbage cannot be distinguished from memory in use.
// Only a collection of this flavor releases the pages that V8 keeps for later use, here up to 100 MiB.
if (isMainThread) {
  process.on('SIGUSR2', () => globalThis.gc?.({ type: 'major', execution: 'sync', flavor: 'last-resort' }));
}
