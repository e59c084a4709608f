import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { test } from 'node:test';
import { engines } from '../../support/engines.ts';
import { newInstallation, type Service } from '../../support/program.ts';
import { bearer } from '../../support/service.ts';

/** Enough concurrent requests that most objects of some allocation sites survive a garbage collection. */
const CROWD = 3_000;
/** The other connections stay idle: the agent reuses the most recently used one. */
const CONCURRENCY = 10;
const REQUESTS = 3_000;
const ROUNDS = 3;
const KIBIBYTE = 1_024;

/** Value of a metric of the heap, in bytes. */
async function heapBytes({ adminUrl }: Service, metric: string): Promise<number> {
  const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
  const line = metrics.split('\n').find((one) => one.startsWith(`${metric} `));
  assert.ok(line !== undefined, `the metrics contain ${metric}`);
  return Number(line.slice(metric.length));
}

const oldHeap = (service: Service) => heapBytes(service, 'nodejs_heap_space_size_used_bytes{space="old"}');

for (const engine of engines)
  test(`after a burst of requests → objects of later requests do not stay in old space, on ${engine.name}`, async (t) => {
    const env = { DATABASE_URL: await engine.freshUrl(t) };
    const installation = await newInstallation(t);
    const { stdout } = await installation.run(['token', 'create', 'alice'], { env });
    const headers = bearer(stdout.trim());
    const service = await installation.serve({ env });
    const agent = new Agent({ keepAlive: true, maxSockets: CROWD });
    t.after(() => agent.destroy());

    async function list(): Promise<void> {
      const [response] = await once(request(`${service.url}/plants`, { agent, headers }).end(), 'response');
      await once(response.resume(), 'end');
    }
    async function listMany(times: number, atOnce: number): Promise<void> {
      for (let done = 0; done < times; done += atOnce)
        await Promise.all(Array.from({ length: atOnce }, list));
    }

    await listMany(2 * CROWD, CROWD);
    await listMany(REQUESTS, CONCURRENCY);
    const growths: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const before = await oldHeap(service);
      await listMany(REQUESTS, CONCURRENCY);
      growths.push(((await oldHeap(service)) - before) / REQUESTS);
    }
    // A full collection in between makes a growth negative.
    assert.ok(Math.max(...growths) < KIBIBYTE, `bytes kept per request: ${growths.map(Math.round)}`);
  });

test('100 connections with 1,000 pipelined requests each → the young generation has up to 32 MiB', async (t) => {
  const service = await (await newInstallation(t)).serve();
  const request = (connection: string) =>
    `GET /nope HTTP/1.1\r\nHost: a\r\nConnection: ${connection}\r\n\r\n`;
  const pipeline = request('keep-alive').repeat(999) + request('close');
  const { port } = new URL(service.url);
  await Promise.all(
    Array.from({ length: 100 }, async () => {
      const socket = connect(Number(port), '127.0.0.1').resume();
      socket.write(pipeline);
      await once(socket, 'close');
    }),
  );
  const bytes = await heapBytes(service, 'nodejs_heap_space_size_total_bytes{space="new"}');
  assert.ok(bytes <= 32 * KIBIBYTE * KIBIBYTE, `${bytes / KIBIBYTE / KIBIBYTE} MiB`);
});
