import { randomUUID } from 'node:crypto';
import type { TestContext } from 'node:test';
import { cpuSeconds } from '../../support/servers/process-tree.ts';
import { bearer } from '../../support/service.ts';
import { Client, createToken, startInstances, stopInOrder } from '../../support/service-instances.ts';

const CLIENTS = 64;
const OWNERS = 16;

interface Throughput {
  readonly writesPerSecond: number;
  readonly medianMs: number;
  readonly p99Ms: number;
  /** Milliseconds of CPU per write, of the instance and of each server of the database. */
  readonly cpuMs: Readonly<Record<string, number>>;
  readonly failures: readonly string[];
}

/**
 * Creates plants of many owners through one instance, as fast as 64 clients can. `servers` are the processes of the
 * database, if they run on this machine.
 */
export async function measureThroughput(
  t: Pick<TestContext, 'after'>,
  url: string,
  seconds: number,
  servers: Readonly<Record<string, number>> = {},
): Promise<Throughput> {
  const instances = await startInstances(t, url, 1);
  const [instance] = instances;
  if (instance === undefined) throw new Error('there is no instance');
  const processes = { service: instance.pid, ...servers };
  const run = randomUUID();
  const tokens = await Promise.all(
    Array.from({ length: OWNERS }, async (_, index) => (await createToken(url, `${run}.${index}`)).secret),
  );
  const client = new Client();
  const times: number[] = [];
  const failures: string[] = [];
  let serial = 0;

  async function createPlants(token: string, until: number): Promise<void> {
    while (performance.now() < until) {
      serial += 1;
      const body = `{"id":${serial},"name":"plant ${serial}"}`;
      const headers = { ...bearer(token), 'content-type': 'application/json' };
      const sentAt = performance.now();
      const answer = await client.ask(instance ?? { url: '' }, {
        method: 'POST',
        path: '/plants',
        headers,
        body,
      });
      times.push(performance.now() - sentAt);
      if (answer.status !== 200) failures.push(`${answer.status} ${answer.body}`);
    }
  }

  const load = (duration: number): Promise<unknown> =>
    Promise.all(
      Array.from({ length: CLIENTS }, (_, index) =>
        createPlants(tokens[index % OWNERS] ?? '', performance.now() + duration * 1_000),
      ),
    );

  // Warms up connections, plans and code.
  await load(Math.min(2, seconds));
  times.length = 0;
  const before = await cpuOf(processes);
  const started = performance.now();
  await load(seconds);
  const elapsed = (performance.now() - started) / 1_000;
  const after = await cpuOf(processes);
  client.close();
  await stopInOrder(instances);
  const sorted = times.toSorted((a, b) => a - b);
  const quantile = (share: number): number => sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
  return {
    writesPerSecond: times.length / elapsed,
    medianMs: quantile(0.5),
    p99Ms: quantile(0.99),
    cpuMs: Object.fromEntries(
      Object.keys(processes).map((name) => [
        name,
        (((after.get(name) ?? 0) - (before.get(name) ?? 0)) / times.length) * 1_000,
      ]),
    ),
    failures,
  };
}

async function cpuOf(processes: Readonly<Record<string, number>>): Promise<ReadonlyMap<string, number>> {
  const entries = Object.entries(processes).map(
    async ([name, pid]): Promise<[string, number]> => [name, (await cpuSeconds(pid)) ?? 0],
  );
  return new Map(await Promise.all(entries));
}

export function describeThroughput({ writesPerSecond, medianMs, p99Ms, cpuMs }: Throughput): string {
  const cpu = Object.entries(cpuMs).map(([name, ms]) => `${name} ${ms.toFixed(2)}`);
  return (
    `${writesPerSecond.toFixed(0)} creations/s, median ${medianMs.toFixed(0)} ms, p99 ${p99Ms.toFixed(0)} ms; ` +
    `ms of CPU a creation: ${cpu.join(', ')}`
  );
}
