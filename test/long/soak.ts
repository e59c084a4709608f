import { stat } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';
import { mintSecret } from '../../src/token.ts';
import { type Answer, Connection } from '../support/clients/keep-alive-client.ts';
import { createRandom } from '../support/data/seeded-random.ts';
import { inMebibytes, MEBIBYTE, openFiles, residentMemory } from '../support/process-resources.ts';
import { newInstallation, type Service } from '../support/program.ts';
import { newSeed, readFlags, seedFlag } from '../support/script-flags.ts';

interface SoakOptions {
  readonly minutes: number;
  readonly connections: number;
  /** Requests per second, on all connections together. */
  readonly rate: number;
  /** The seed of the requests, not of their times. */
  readonly seed: number;
  readonly report: (line: string) => void;
}

/** The resources of a service over a period. */
interface Holding {
  /** Resident memory in bytes: the median. */
  readonly memory: number;
  /** The heap in use, in bytes: the minimum, which is the value after a garbage collection. */
  readonly heap: number;
  /** File descriptors: the maximum. */
  readonly files: number;
  /** The write-ahead log in bytes: the maximum. */
  readonly log: number;
}

interface SoakSummary {
  readonly requests: number;
  /** In the first and in the last sixth of the time. */
  readonly first: Holding;
  readonly last: Holding;
  /** The first few unexpected responses. */
  readonly surprises: readonly string[];
}

/** The allowed growth from the first to the last sixth. */
export const SOAK_LIMITS: Holding = {
  memory: 48 * MEBIBYTE,
  heap: 4 * MEBIBYTE,
  files: 4,
  log: 2 * MEBIBYTE,
};

const IDS_PER_CONNECTION = 100;
const REQUESTS_PER_CONNECTION = 500;
const SAMPLE_EVERY_MS = 3_000;
const REPORTS = 30;
const MAX_SURPRISES = 10;

/** Runs all kinds of requests at a steady rate, and records the resources of the service. */
export async function soak({ minutes, connections, rate, seed, report }: SoakOptions): Promise<SoakSummary> {
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const token = await installation.token('soak');
  const service = await installation.serve({
    env: { NODE_ENV: 'production', REFUSED_TOKEN_LIMIT: '0' },
    remembers: ({ msg, level }) => msg === 'serving' || Number(level) >= 50,
  });
  const duration = minutes * 60_000;
  const load: Load = { service, token, until: performance.now() + duration, surprises: [], requests: 0 };
  const clients = Array.from({ length: connections }, (_, number) =>
    keepAsking(load, {
      firstId: BigInt(number * IDS_PER_CONNECTION),
      everyMs: (1_000 * connections) / rate,
      random: createRandom(seed + number),
    }),
  );
  const holdings = await watch(service, `${installation.file}-wal`, duration, report);
  await Promise.all(clients);
  const { code } = await service.stop();
  if (code !== 0) load.surprises.push(`the service stopped with exit code ${code}`);
  for (const line of service.log) if (Number(line.level) >= 50) load.surprises.push(JSON.stringify(line));
  const sixth = Math.ceil(holdings.length / 6);
  return {
    requests: load.requests,
    first: summarize(holdings.slice(0, sixth)),
    last: summarize(holdings.slice(-sixth)),
    surprises: load.surprises.slice(0, MAX_SURPRISES),
  };
}

async function watch(
  service: Service,
  log: string,
  duration: number,
  report: (line: string) => void,
): Promise<readonly Holding[]> {
  const holdings: Holding[] = [];
  const samples = Math.ceil(Math.max(duration / SAMPLE_EVERY_MS, 2 * REPORTS));
  for (let sample = 1; sample <= samples; sample += 1) {
    await setTimeout(duration / samples);
    const { size } = await stat(log);
    const holding = {
      memory: await residentMemory(service),
      heap: await heapInUse(service),
      files: await openFiles(service),
      log: size,
    };
    holdings.push(holding);
    const part = (sample * REPORTS) / samples;
    if (Number.isInteger(part)) report(`${part}/${REPORTS}: ${describeHolding(holding)}`);
  }
  return holdings;
}

async function heapInUse({ adminUrl }: Service): Promise<number> {
  const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
  const match = /^nodejs_heap_size_used_bytes (\S+)$/m.exec(metrics);
  if (match === null) throw new Error('the metrics do not contain the heap size');
  return Number(match[1]);
}

function summarize(holdings: readonly Holding[]): Holding {
  const memories = holdings.map(({ memory }) => memory).sort((a, b) => a - b);
  return {
    memory: memories[Math.floor(memories.length / 2)] ?? 0,
    heap: Math.min(...holdings.map(({ heap }) => heap)),
    files: Math.max(...holdings.map(({ files }) => files)),
    log: Math.max(...holdings.map(({ log }) => log)),
  };
}

interface Load {
  readonly service: Service;
  readonly token: string;
  readonly until: number;
  readonly surprises: string[];
  requests: number;
}

interface Client {
  /** The first id of this connection. */
  readonly firstId: bigint;
  readonly everyMs: number;
  readonly random: () => number;
}

/** Sends requests on one connection until the time is over. */
async function keepAsking(load: Load, { firstId, everyMs, random }: Client): Promise<void> {
  const present = new Set<bigint>();
  let next = performance.now() + random() * everyMs;
  while (next < load.until) {
    const connection = new Connection(load.service.url, load.token);
    const stranger = new Connection(load.service.url, mintSecret());
    for (let count = 0; count < REQUESTS_PER_CONNECTION && next < load.until; count += 1) {
      await setTimeout(Math.max(0, next - performance.now()));
      next = Math.max(next + everyMs, performance.now());
      const id = firstId + BigInt(Math.floor(random() * IDS_PER_CONNECTION));
      load.requests += 1;
      const surprise = await ask({ connection, stranger, present, id, random });
      if (surprise !== undefined) load.surprises.push(surprise);
    }
    connection.close();
    stranger.close();
  }
}

interface Step {
  readonly connection: Connection;
  /** A connection with an invalid token. */
  readonly stranger: Connection;
  /** The ids of existing plants. */
  readonly present: Set<bigint>;
  readonly id: bigint;
  readonly random: () => number;
}

let keys = 0;

/** Sends one random request. Resolves to the difference from the expected response. */
async function ask({ connection, stranger, present, id, random }: Step): Promise<string | undefined> {
  const choice = random();
  const plant = { name: `plant ${id} ${'x'.repeat(random() * 200)}`, tag: random() < 0.5 ? null : 'soaked' };
  const isThere = present.has(id);
  if (choice < 0.2) return differs('a list of 20', await connection.list(20), 200);
  if (choice < 0.25) return differs('a list of all', await connection.list(), 200);
  if (choice < 0.3) return differs('a list with an invalid token', await stranger.list(20), 401);
  if (choice < 0.6) {
    present.delete(id);
    return differs('a deletion', await connection.delete(id), isThere ? 204 : 404);
  }
  present.add(id);
  if (choice < 0.9 || isThere) {
    return differs('a creation', await connection.create(id, plant), isThere ? 400 : 200);
  }
  keys += 1;
  const key = `soak-${keys}`;
  await connection.create(id, plant, key);
  return differs('a creation repeated', await connection.create(id, plant, key), 200);
}

function differs(what: string, answer: Answer | undefined, status: number): string | undefined {
  if (answer?.status === status) return undefined;
  return `${what} got ${answer === undefined ? 'no answer' : `${answer.status} ${answer.body}`} instead of ${status}`;
}

/** Returns the bounds that a summary breaks, in words. */
export function soakFaults({ first, last, surprises }: SoakSummary, limits = SOAK_LIMITS): string[] {
  const grown = (['memory', 'heap', 'files', 'log'] as const).filter(
    (what) => last[what] - first[what] > limits[what],
  );
  return [...surprises, ...grown.map((what) => `${what}: ${first[what]} at first, ${last[what]} at the end`)];
}

/** Formats the resources. */
export function describeHolding({ memory, heap, files, log }: Holding): string {
  return `${inMebibytes(memory)} resident, ${inMebibytes(heap)} of heap, ${files} file descriptors, ${inMebibytes(log)} of write-ahead log`;
}

if (import.meta.main) {
  const values = readFlags(
    'Runs a mixed load, and compares the resources of the service in the first and the last sixth of the time.',
    {
      minutes: { type: 'string', default: '30', about: 'how long' },
      connections: { type: 'string', default: '8', about: 'number of connections' },
      rate: { type: 'string', default: '1000', about: 'requests per second on all connections' },
      seed: seedFlag,
    },
  );
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  const seed = Number(values.seed ?? newSeed());
  write(`seed ${seed}`);
  const summary = await soak({
    minutes: Number(values.minutes),
    connections: Number(values.connections),
    rate: Number(values.rate),
    seed,
    report: write,
  });
  write(`${summary.requests} requests in ${values.minutes} minutes`);
  write(`first sixth: ${describeHolding(summary.first)}`);
  write(`last sixth:  ${describeHolding(summary.last)}`);
  const faults = soakFaults(summary);
  for (const fault of faults) write(fault);
  if (faults.length > 0) process.exitCode = 1;
}
