import { connect, type Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { Connection } from '../support/clients/keep-alive-client.ts';
import { describeLatencies, type Latencies, latenciesOf } from '../support/latencies.ts';
import {
  inMebibytes,
  MEBIBYTE,
  needOpenFiles,
  openFiles,
  residentMemory,
} from '../support/process-resources.ts';
import { newInstallation, type Service } from '../support/program.ts';
import { readFlags } from '../support/script-flags.ts';
import { fillStore } from './long-list.ts';

interface SlowOptions {
  /** A third of them send headers slowly, a third a body, and a third read a long list slowly. */
  readonly clients: number;
  /** Seconds for which they stay connected together. */
  readonly seconds: number;
  /** Number of plants in the slowly read list, of 400 bytes each. */
  readonly plants: number;
  readonly report: (line: string) => void;
}

export interface SlowFigures {
  /** Peak of connected slow clients, by the service's own count of sockets. */
  readonly connected: number;
  /** Number of slow connections that the service closed. */
  readonly cut: number;
  /** Response times of other clients, alone and during the wave. */
  readonly alone: Latencies;
  readonly others: Latencies;
  /** Memory and descriptors of the service before the wave and after all clients have gone. */
  readonly before: Held;
  readonly after: Held;
  readonly problems: readonly string[];
}

interface Held {
  readonly files: number;
  readonly memory: number;
}

const SLOW_LATENCY_LIMIT_MS = 100;
const SLOW_GROWTH_LIMIT = 48 * MEBIBYTE;

const NAME_LENGTH = 400;
const STEP_MS = 250;
const CONNECTS_AT_ONCE = 20;
const OTHERS = 4;
const OTHERS_PAUSE_MS = 5;
const SETTLES_WITHIN_MS = 30_000;

/**
 * Makes V8 release free memory on SIGUSR2, and glibc always (mallopt(3)). Otherwise both keep memory for later use.
 */
const GIVES_MEMORY_BACK = {
  NODE_OPTIONS: `--expose-gc --import=${new URL('./collect-garbage.ts', import.meta.url).href}`,
  MALLOC_TRIM_THRESHOLD_: '65536',
  MALLOC_MMAP_THRESHOLD_: '65536',
};

type Behaviour = (socket: Socket, token: string) => Promise<void>;

/** Measures a service with many slow clients: the response times of others, and the resources left in use. */
export async function measureSlowClients({
  clients,
  seconds,
  plants,
  report,
}: SlowOptions): Promise<SlowFigures> {
  needOpenFiles(clients + OTHERS);
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const token = await installation.token('alice');
  const ownToken = await installation.token('bob');
  await fillStore(installation.databaseUrl, 'alice', plants, NAME_LENGTH);
  const service = await installation.serve({
    env: { NODE_ENV: 'production', ...GIVES_MEMORY_BACK },
    remembers: ({ msg, level }) => msg === 'serving' || Number(level) >= 50,
  });
  const idle = await openFiles(service);
  const control = askMeanwhile(service, ownToken);
  await setTimeout(Math.min(seconds, 5) * 1_000);
  const alone = await control.stop();
  report(`others alone: ${describeLatencies(alone)}`);
  const before = await settled(service, { files: idle, memory: Number.POSITIVE_INFINITY });
  report(`before: ${describeHeld(before)}`);

  const others = askMeanwhile(service, ownToken);
  const wave = await runWave(service, token, clients, seconds);
  const latencies = await others.stop();
  report(`${wave.connected} sockets at peak, ${wave.cut} cut off; others: ${describeLatencies(latencies)}`);
  const after = await settled(service, { files: before.files, memory: before.memory + SLOW_GROWTH_LIMIT });
  report(`after: ${describeHeld(after)}`);
  const { code } = await service.stop();
  const complaints = service.log.filter(({ msg }) => msg !== 'serving').map((line) => JSON.stringify(line));
  const problems = [
    ...complaints,
    ...control.problems,
    ...others.problems,
    ...(code === 0 ? [] : [`exit code ${code}`]),
  ];
  return { ...wave, alone, others: latencies, before, after, problems };
}

/** Connects all, replaces each one that the service closes, and disconnects them at the end. */
async function runWave(service: Service, token: string, clients: number, seconds: number) {
  const idle = await openFiles(service);
  const until = performance.now() + seconds * 1_000;
  const counts = { cut: 0 };
  let connected = 0;
  const running: Promise<void>[] = [];
  const behaviours = [sendHeadersSlowly, sendBodySlowly, readSlowly];
  for (let number = 0; number < clients; number += 1) {
    const behave = behaviours[number % behaviours.length];
    if (behave === undefined) break;
    running.push(beSlow(service, token, until, behave, counts));
    if (number % CONNECTS_AT_ONCE === 0) await setTimeout(1);
  }
  while (performance.now() < until) {
    connected = Math.max(connected, (await openFiles(service)) - idle);
    await setTimeout(STEP_MS);
  }
  await Promise.all(running);
  return { connected, cut: counts.cut };
}

async function beSlow(
  { url }: Service,
  token: string,
  until: number,
  behave: Behaviour,
  counts: { cut: number },
): Promise<void> {
  const { hostname, port } = new URL(url);
  while (performance.now() < until) {
    const socket = connect({ host: hostname, port: Number(port) });
    const closed = new Promise<void>((resolve) => void socket.once('close', () => resolve()));
    socket.on('error', () => undefined);
    const timer = new AbortController();
    const over = setTimeout(Math.max(0, until - performance.now()), undefined, { signal: timer.signal }).then(
      () => socket.destroy(),
      () => undefined,
    );
    await Promise.race([behave(socket, token), closed]);
    await closed;
    timer.abort();
    await over;
    if (performance.now() < until) counts.cut += 1;
  }
}

async function sendHeadersSlowly(socket: Socket, token: string): Promise<void> {
  socket.resume();
  const text = `GET /plants?limit=1 HTTP/1.1\r\nHost: plants.test\r\nAuthorization: Bearer ${token}\r\nX-Slow: `;
  await trickle(socket, text);
}

async function sendBodySlowly(socket: Socket, token: string): Promise<void> {
  socket.resume();
  socket.write(
    `POST /plants HTTP/1.1\r\nHost: plants.test\r\nAuthorization: Bearer ${token}\r\n` +
      'Content-Type: application/json\r\nContent-Length: 500\r\n\r\n',
  );
  await trickle(socket, '{"id":1,"name":"');
}

/** Sends a few bytes at intervals, forever. */
async function trickle(socket: Socket, text: string): Promise<void> {
  for (let at = 0; !socket.destroyed; at += 2) {
    socket.write(text.slice(at, at + 2) || 'x');
    await setTimeout(STEP_MS * (1 + Math.random()));
  }
}

/** Reads a little at intervals: the kernel buffers on both sides fill up, and then the service has to wait. */
async function readSlowly(socket: Socket, token: string): Promise<void> {
  socket.pause();
  socket.write(`GET /plants HTTP/1.1\r\nHost: plants.test\r\nAuthorization: Bearer ${token}\r\n\r\n`);
  while (!socket.destroyed) {
    await setTimeout(STEP_MS * (1 + Math.random()));
    socket.read(1_024);
  }
}

/** Runs well-behaved clients: each creates, lists and deletes in a loop. */
function askMeanwhile(service: Service, token: string) {
  const times: number[] = [];
  const problems: string[] = [];
  let isStopped = false;

  async function ask(number: number): Promise<void> {
    const connection = new Connection(service.url, token);
    for (let count = 0; !isStopped; count += 1) {
      const id = BigInt(number * 1_000_000 + count);
      const steps = [
        () => connection.create(id, { name: 'Fern', tag: null }),
        () => connection.list(20),
        () => connection.delete(id),
      ];
      for (const step of steps) {
        const began = performance.now();
        const answer = await step();
        times.push(performance.now() - began);
        if (answer === undefined || answer.status >= 300)
          problems.push(`another client got ${answer?.status}`);
        await setTimeout(OTHERS_PAUSE_MS);
      }
    }
    connection.close();
  }

  const asking = Promise.all(Array.from({ length: OTHERS }, (_, number) => ask(number)));
  return {
    problems,
    stop: async () => {
      isStopped = true;
      await asking;
      return latenciesOf(times);
    },
  };
}

/** Returns the resources of a service when they are back to normal, or after a time limit. */
async function settled(service: Service, { files, memory }: Held): Promise<Held> {
  const deadline = performance.now() + SETTLES_WITHIN_MS;
  for (;;) {
    service.kill('SIGUSR2');
    await setTimeout(STEP_MS);
    const held = { files: await openFiles(service), memory: await residentMemory(service) };
    if ((held.files <= files && held.memory <= memory) || performance.now() > deadline) return held;
  }
}

/** Returns the bounds that the figures break, in words. */
export function slowFaults(
  figures: SlowFigures,
  clients: number,
  latencyLimit = SLOW_LATENCY_LIMIT_MS,
): string[] {
  const { connected, others, before, after, problems } = figures;
  return [
    ...problems,
    ...(connected >= clients * 0.95
      ? []
      : [`only ${connected} of ${clients} slow clients were connected at once`]),
    ...(others.p99 < latencyLimit ? [] : [`other clients waited too long: p99 ${others.p99.toFixed(1)} ms`]),
    ...(after.files <= before.files ? [] : [`${after.files - before.files} sockets are still open`]),
    ...(after.memory - before.memory <= SLOW_GROWTH_LIMIT ? [] : ['the memory was not released']),
  ];
}

function describeHeld({ files, memory }: Held): string {
  return `${files} file descriptors, ${inMebibytes(memory)} resident`;
}

if (import.meta.main) {
  const values = readFlags(
    'Runs clients that send and read slowly. Measures the response times of others and the resources left in use.',
    {
      clients: { type: 'string', default: '2000', about: 'number of slow clients' },
      seconds: { type: 'string', default: '30', about: 'how long' },
    },
  );
  const clients = Number(values.clients);
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  const figures = await measureSlowClients({
    clients,
    seconds: Number(values.seconds),
    plants: 50_000,
    report: write,
  });
  const faults = slowFaults(figures, clients);
  for (const fault of faults) write(fault);
  if (faults.length > 0) process.exitCode = 1;
}
