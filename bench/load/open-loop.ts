import { join } from 'node:path';
import type { Generator, Job } from './generator.ts';

/**
 * Seconds at the start of a job that do not count. V8 compiles the code of the generator then, which is thus late
 * itself. Requests that find no free connection in this time are not sent, so that later ones do not wait for them.
 */
export const COLD_SECONDS = 1;

/**
 * A load generator that sends at a constant rate, independent of responses. Latency counts from the due time
 * of a request, so it includes the wait for a free connection. Stalls of the server are thus visible (no
 * coordinated omission). A job takes more than COLD_SECONDS.
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
