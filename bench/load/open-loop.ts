import { join } from 'node:path';
import type { Generator, Job } from './generator.ts';

/**
 * A load generator that sends at a constant rate, independent of responses. Latency counts from the due time
 * of a request, so it includes the wait for a free connection. Stalls of the server are thus visible (no
 * coordinated omission).
 */
export function openLoop(perSecond: number): Generator {
  return {
    name: 'open loop',
    threads: 1,
    command: (job: Job) => [
      process.execPath,
      join(import.meta.dirname, 'open-loop-process.ts'),
      String(perSecond),
      JSON.stringify(job),
    ],
  };
}
