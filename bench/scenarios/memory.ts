import { once } from 'node:events';
import { mkdtemp } from 'node:fs/promises';
import { Agent, get, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { residentMemory } from '../../test/support/process-resources.ts';
import { bareNode } from '../contenders/baselines.ts';
import { plantStore } from '../contenders/plant-store.ts';
import { type RunningSubject, startSubjects } from '../contenders/subject.ts';
import { decimals, mebibytes } from '../report/table.ts';
import type { Bench, Part, Report } from './scenario.ts';

const CONNECTIONS = 1_000;
/** Connections opened at once, fewer than the connection limit of every contender. */
const AT_ONCE = 50;
const REST_MS = 1_000;

export const memoryPart: Part = {
  name: 'memory',
  about: 'memory at rest and per open connection',
  run: runMemory,
};

async function runMemory({ folder, alternatives, signal }: Bench): Promise<Report> {
  await using resources = new AsyncDisposableStack();
  const subjects = [plantStore, bareNode, ...alternatives];
  const started = await startSubjects(
    subjects,
    { folder: await mkdtemp(join(folder, 'memory-')), signal },
    resources,
  );
  const measured = [];
  for (const { name, running } of started) measured.push({ name, ...(await measureMemory(running, signal)) });
  const rows = measured.map(({ name, atRest, withConnections }) => [
    `  ${name}`,
    mebibytes(atRest),
    decimals(1)((withConnections - atRest) / CONNECTIONS / 1_024),
  ]);
  return {
    tables: [[['resident memory', 'at rest, MiB', 'per connection, KiB'], ...rows]],
    results: {},
    json: measured,
    contenders: [],
  };
}

/** Measures resident bytes twice: without connections, and with many connections that have each had one response. */
async function measureMemory(running: RunningSubject, signal: AbortSignal) {
  const { url, headers, targetOf } = running;
  await setTimeout(REST_MS, undefined, { signal });
  const atRest = await residentMemory(running);
  const list = `${url}${targetOf('/plants?limit=1')}`;
  // Uses a new agent for each group of connections, so that the next group opens new connections.
  const agents = Array.from(
    { length: CONNECTIONS / AT_ONCE },
    () => new Agent({ keepAlive: true, maxFreeSockets: AT_ONCE }),
  );
  for (const agent of agents)
    await Promise.all(Array.from({ length: AT_ONCE }, () => ask(list, headers, agent)));
  const withConnections = await residentMemory(running);
  for (const agent of agents) agent.destroy();
  return { atRest, withConnections };
}

async function ask(url: string, headers: RunningSubject['headers'], agent: Agent): Promise<void> {
  const [response]: IncomingMessage[] = await once(get(url, { agent, headers }), 'response');
  await response?.resume().toArray();
  if (response?.statusCode !== 200) throw new Error(`${url} answered ${response?.statusCode}`);
}
