import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { test } from 'node:test';
import { engines } from '../support/engines.ts';
import { newInstallation, type Service } from '../support/program.ts';
import { bearer } from '../support/service.ts';

/** So many at once that a collection finds most of what was made at some places still in use. */
const CROWD = 3_000;
/** The rest of the connections stay idle: the agent takes the one that was used last. */
const AT_ONCE = 10;
const REQUESTS = 3_000;
const ROUNDS = 3;
const KIBIBYTE = 1_024;

/** What the garbage collection keeps beside what is new, in bytes. */
async function oldHeap({ adminUrl }: Service): Promise<number> {
  const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
  const [, bytes] = /^nodejs_heap_space_size_used_bytes\{space="old"\} (\S+)$/m.exec(metrics) ?? [];
  assert.ok(bytes !== undefined, 'the metrics tell the old heap');
  return Number(bytes);
}

for (const engine of engines)
  test(`requests on ${engine.name}, after a crowd → none outlives its response`, async (t) => {
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
    await listMany(REQUESTS, AT_ONCE);
    const growths: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const before = await oldHeap(service);
      await listMany(REQUESTS, AT_ONCE);
      growths.push(((await oldHeap(service)) - before) / REQUESTS);
    }
    // A full collection in between makes one of them less than nothing.
    assert.ok(Math.max(...growths) < KIBIBYTE, `bytes of a request that stay: ${growths.map(Math.round)}`);
  });
