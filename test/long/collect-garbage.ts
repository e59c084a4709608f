import { isMainThread } from 'node:worker_threads';

// Preloaded into a measured service: from outside, uncollected garbage cannot be distinguished from memory in use.
if (isMainThread) process.on('SIGUSR2', () => globalThis.gc?.());
