import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import autocannon, { type Request, type Result } from 'autocannon';
import type { Job, LoadResult } from './generator.ts';
import { createIds, firstSecret } from './ids.ts';
import { percentile } from './percentile.ts';

/** The share of the load that one of `count` workers generates; `index` is the number of the worker. */
interface Share {
  readonly job: Job;
  readonly index: number;
  readonly count: number;
}

interface ShareResult {
  readonly latencies: readonly number[];
  readonly seconds: number;
  readonly failures: number;
  readonly cpuSeconds: number;
}

if (isMainThread) {
  const job: Job = JSON.parse(process.argv[3] ?? '');
  const count = Math.min(Number(process.argv[2]), job.connections);
  const shares = Array.from({ length: count }, (_, index) => ({ job, index, count }));
  const results = await Promise.all(shares.map(runInWorker));
  process.stdout.write(`${JSON.stringify(sum(results))}\n`);
} else parentPort?.postMessage(await run(workerData));

async function runInWorker(share: Share): Promise<ShareResult> {
  const worker = new Worker(import.meta.filename, { workerData: share });
  const [result]: ShareResult[] = await once(worker, 'message');
  if (result === undefined) throw new Error('a worker sent no result');
  return result;
}

function sum(results: readonly ShareResult[]): LoadResult {
  const latencies = results.flatMap((result) => result.latencies).sort((a, b) => a - b);
  return {
    answers: latencies.length,
    seconds: Math.max(...results.map(({ seconds }) => seconds)),
    p50Ms: percentile(latencies, 0.5),
    p99Ms: percentile(latencies, 0.99),
    failures: results.reduce((total, { failures }) => total + failures, 0),
    cpuSeconds: results.reduce((total, { cpuSeconds }) => total + cpuSeconds, 0),
  };
}

async function run({ job, index, count }: Share): Promise<ShareResult> {
  const latencies: number[] = [];
  let errorResponses = 0;
  const { promise, resolve, reject } = Promise.withResolvers<Result>();
  const connections = Math.floor((job.connections + index) / count);
  const setupRequest = nextOf({ job, index, count });
  const before = process.threadCpuUsage();
  const instance = autocannon(
    {
      url: job.url,
      connections,
      duration: job.seconds,
      requests: [{ setupRequest }],
    },
    (error: unknown, result) => (error ? reject(error) : resolve(result)),
  );
  // Collects exact latencies: autocannon's histogram has a resolution of one millisecond.
  instance.on('response', (_client, status, _bytes, ms) => {
    latencies.push(ms);
    if (status >= 400) errorResponses += 1;
  });
  const { duration: seconds, errors } = await promise;
  const { user, system } = process.threadCpuUsage(before);
  return { latencies, seconds, failures: errorResponses + errors, cpuSeconds: (user + system) / 1e6 };
}

/**
 * Returns a function that creates the requests of a worker. Each of the `count` workers uses every `count`th
 * id of the run.
 */
function nextOf({ job, index, count }: Share): (request: Request) => Request {
  const nextId = createIds(job.ids);
  for (let skipped = 0; skipped < index; skipped += 1) nextId();
  const secrets =
    job.secretsFile === undefined ? [] : readFileSync(job.secretsFile, 'utf8').trim().split('\n');
  const cycle = job.requests.flatMap((request) => Array.from({ length: request.times }, () => request));
  const first = firstSecret(job.ids) + index;
  let turn = 0;
  return (request) => {
    const template = cycle[turn % cycle.length];
    if (template === undefined) throw new Error('the job has no requests');
    const { method, target, idempotencyKey, body } = template;
    const secret = secrets[(first + turn * count) % secrets.length];
    turn += 1;
    const id = String(nextId());
    for (let skipped = 1; skipped < count; skipped += 1) nextId();
    const headers = {
      ...job.headers,
      ...(secret !== undefined && { authorization: `Bearer ${secret}` }),
      ...(idempotencyKey !== undefined && { 'idempotency-key': idempotencyKey.replace('{id}', id) }),
      ...(body !== '' && { 'content-type': 'application/json' }),
    };
    return { ...request, method, headers, path: target.replace('{id}', id), body: body.replace('{id}', id) };
  };
}
