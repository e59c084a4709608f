import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import type { Generator, Job } from './generator.ts';

const SCRIPT = join(import.meta.dirname, 'wrk.lua');

/** wrk (https://github.com/wg/wrk), on one thread: the cheaper generator, where it is installed. */
export const wrk: Generator = {
  name: 'wrk',
  command: (job) => [
    'wrk',
    '--threads=1',
    `--connections=${job.connections}`,
    `--duration=${job.seconds}s`,
    '--latency',
    `--script=${SCRIPT}`,
    ...Object.entries(headersOf(job)).map(([name, value]) => `--header=${name}: ${value}`),
    job.url,
    '--',
    job.method,
    job.target,
    job.body,
    String(job.expectedStatus),
    ...idArguments(job),
  ],
};

export function isWrkInstalled(): boolean {
  return spawnSync('wrk', ['--version'], { stdio: 'ignore' }).error === undefined;
}

function headersOf({ headers, body }: Job): Readonly<Record<string, string>> {
  return body === '' ? headers : { ...headers, 'Content-Type': 'application/json' };
}

function idArguments({ ids }: Job): string[] {
  return ids.order === 'sequential'
    ? [ids.order, String(ids.first)]
    : [ids.order, String(ids.seed), String(ids.lane)];
}
