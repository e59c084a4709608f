import { join } from 'node:path';
import type { Generator, Job } from './generator.ts';

/**
 * A generator that sends at a constant rate, whether or not answers come: what waits for a connection waits in the
 * latency too, which is counted from when a request was due. So a server that stalls cannot hide it (coordinated omission).
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
