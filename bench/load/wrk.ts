import { join } from 'node:path';
import type { Generator, Job } from './generator.ts';

const SCRIPT = join(import.meta.dirname, 'wrk.lua');

/**
 * wrk (https://github.com/wg/wrk), a load generator on one thread. Uses less CPU than autocannon, but must be
 * installed.
 */
export const wrk: Generator = {
  name: 'wrk',
  threads: 1,
  command: (job) => [
    'wrk',
    '--threads=1',
    `--connections=${job.connections}`,
    `--duration=${job.seconds}s`,
    '--latency',
    `--script=${SCRIPT}`,
    ...Object.entries(job.headers).map(([name, value]) => `--header=${name}: ${value}`),
    job.url,
    '--',
    ...idArguments(job),
    job.secretsFile ?? '',
    ...job.requests.flatMap(({ method, target, idempotencyKey = '', body, times }) => [
      ...[method, target, idempotencyKey, body],
      String(times),
    ]),
  ],
};

function idArguments({ ids }: Job): string[] {
  return ids.order === 'sequential'
    ? [ids.order, String(ids.first), '']
    : [ids.order, String(ids.seed), String(ids.lane)];
}
