import { isMainThread } from 'node:worker_threads';

// Loaded before a service that is measured: it cannot be told from outside what is still held from what is not yet collected.
if (isMainThread) process.on('SIGUSR2', () => globalThis.gc?.());
