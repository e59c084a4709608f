import autocannon, { type Request, type Result } from 'autocannon';
import type { Job, Tally } from './generator.ts';
import { createIds } from './ids.ts';

const job: Job = JSON.parse(process.argv[2] ?? '');
process.stdout.write(`${JSON.stringify(await run(job))}\n`);

async function run(job: Job): Promise<Tally> {
  const latencies: number[] = [];
  let unexpected = 0;
  const { promise, resolve, reject } = Promise.withResolvers<Result>();
  const { url, method, connections, seconds: duration } = job;
  const instance = autocannon(
    {
      url,
      method,
      connections,
      duration,
      requests: [{ headers: headersOf(job), setupRequest: nextOf(job) }],
    },
    (error: unknown, result) => (error ? reject(error) : resolve(result)),
  );
  // autocannon's own histogram has whole milliseconds only.
  instance.on('response', (_client, status, _bytes, ms) => {
    latencies.push(ms);
    if (status !== job.expectedStatus) unexpected += 1;
  });
  const { duration: seconds, errors } = await promise;
  latencies.sort((a, b) => a - b);
  const at = (share: number): number => latencies[Math.floor((latencies.length - 1) * share)] ?? 0;
  return {
    answers: latencies.length,
    seconds,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    failures: unexpected + errors,
  };
}

function headersOf({ headers, body }: Job): Record<string, string> {
  return body === '' ? { ...headers } : { ...headers, 'content-type': 'application/json' };
}

function nextOf({ target, body, ids }: Job): (request: Request) => Request {
  const nextId = createIds(ids);
  return (request) => {
    const id = String(nextId());
    return { ...request, path: target.replace('{id}', id), body: body.replace('{id}', id) };
  };
}
