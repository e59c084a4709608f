import { setTimeout } from 'node:timers/promises';
import { openWire, type Wire } from '../support/clients/raw-connection.ts';
import { headerOf, type RawAnswer } from '../support/clients/raw-http.ts';
import { describeLatencies, type Latencies, latenciesOf } from '../support/latencies.ts';
import { needOpenFiles } from '../support/process-resources.ts';
import { newInstallation } from '../support/program.ts';
import { readFlags } from '../support/script-flags.ts';
import { fillStore } from './long-list.ts';

interface OverloadOptions {
  /** Milliseconds for which the load exceeds the capacity of the service. */
  readonly seconds: number;
  /** Ratio of the load to the capacity. */
  readonly factor: number;
  readonly report: (line: string) => void;
}

export interface OverloadFigures {
  /** Responses per second at full load. */
  readonly capacity: number;
  /** Response times at full load, in milliseconds. */
  readonly full: Latencies;
  readonly overloaded: Outcome;
  /** Seconds from the end of the overload until every response is as fast as at full load again. */
  readonly recovery: number;
  readonly problems: readonly string[];
}

/** The results of an overload. */
interface Outcome {
  /** Requests sent per second. */
  readonly offered: number;
  readonly admitted: Latencies;
  readonly rejected: Latencies;
}

/**
 * The bounds: how much slower than at full load admitted requests may be, the max seconds of recovery, and the least
 * share of the load that is sent.
 */
const OVERLOAD_LIMITS = { slower: 3, recovery: 5, offered: 0.9 };

/** The default number of requests that the service admits at once. */
const FULL_CONNECTIONS = 256;
const CONNECTIONS = 4_000;
const PLANTS = 5_000;
const RECOVERS_WITHIN_S = 60;
const QUICK_ANSWERS_IN_A_ROW = 50;

/** Sends a service many times its capacity, and measures the effect. */
export async function measureOverload({
  seconds,
  factor,
  report,
}: OverloadOptions): Promise<OverloadFigures> {
  needOpenFiles(CONNECTIONS);
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const token = await installation.token('alice');
  await fillStore(installation.databaseUrl, 'alice', PLANTS, 20);
  const service = await installation.serve({
    env: { NODE_ENV: 'production' },
    remembers: ({ msg, level }) => msg === 'serving' || Number(level) >= 50,
  });
  // Expensive for the service and cheap for the sender: ten times the capacity for cheap requests is out of reach.
  const request = `GET /plants?limit=${PLANTS} HTTP/1.1\r\nHost: plants.test\r\nAuthorization: Bearer ${token}\r\n\r\n`;
  const problems: string[] = [];
  const clients = await connectClients(service.url, request, (problem) => problems.push(problem));

  await fillUp(clients, Math.min(seconds / 2, 2));
  const { perSecond: capacity, times } = await fillUp(clients, Math.min(seconds / 2, 10));
  const full = latenciesOf(times);
  report(`full load: ${Math.round(capacity)} a second; ${describeLatencies(full)}`);

  const overloaded = await offer(clients, capacity * factor, seconds);
  report(`offered: ${Math.round(overloaded.offered)} a second`);
  report(`admitted: ${describeLatencies(overloaded.admitted)}`);
  report(`rejected: ${describeLatencies(overloaded.rejected)}`);

  const recovery = await recover(clients, full.p99);
  report(`recovered after ${recovery.toFixed(1)} s`);
  clients.close();
  const { code } = await service.stop();
  if (code !== 0) problems.push(`exit code ${code}`);
  for (const line of service.log) if (line.msg !== 'serving') problems.push(JSON.stringify(line));
  return { capacity, full, overloaded, recovery, problems: [...new Set(problems)].slice(0, 10) };
}

interface Clients {
  /** Sends a request on a free connection. Resolves to its status, or to undefined when no connection is free. */
  ask(): Promise<number | undefined>;
  close(): void;
}

async function connectClients(
  url: string,
  request: string,
  onProblem: (problem: string) => void,
): Promise<Clients> {
  // Opened before the load, as a proxy keeps its connections open.
  const free = await Promise.all(Array.from({ length: CONNECTIONS }, () => openUsed(url)));
  const all = new Set(free);

  function drop(wire: Wire): void {
    wire.destroy();
    all.delete(wire);
  }

  async function ask(): Promise<number | undefined> {
    const wire = free.pop();
    if (wire === undefined) return undefined;
    try {
      wire.send(request);
      const answer = await wire.answer({ withinMs: 30_000 });
      if (answer === undefined) throw new Error('a connection was closed without a response');
      const problem = problemOf(answer);
      if (problem !== undefined) onProblem(problem);
      if (headerOf(answer.headers, 'connection') === 'close') drop(wire);
      else free.push(wire);
      return answer.status;
    } catch (error: unknown) {
      onProblem(String(error));
      drop(wire);
      return 0;
    }
  }

  return { ask, close: () => [...all].forEach(drop) };
}

/** Opens a connection and waits for its first response: an unused connection would be closed soon. */
async function openUsed(url: string): Promise<Wire> {
  const wire = openWire(url);
  wire.send('OPTIONS /plants HTTP/1.1\r\nHost: plants.test\r\n\r\n');
  await wire.answer({ withinMs: 60_000 });
  return wire;
}

function problemOf({ status, headers, body }: RawAnswer): string | undefined {
  if (status === 200) return undefined;
  if (status !== 503) return `a request got ${status}`;
  if (!/^[1-9][0-9]*$/.test(headerOf(headers, 'retry-after') ?? '')) return 'a 503 has no Retry-After';
  return body.includes('"error":50301') ? undefined : `a 503 says ${body.toString()}`;
}

/** Runs as many clients as possible without a rejection, each with one request after the other. */
async function fillUp({ ask }: Clients, seconds: number) {
  const times: number[] = [];
  const began = performance.now();
  async function keepAsking(): Promise<void> {
    while (performance.now() - began < seconds * 1_000) {
      const sent = performance.now();
      if ((await ask()) === 200) times.push(performance.now() - sent);
    }
  }
  await Promise.all(Array.from({ length: FULL_CONNECTIONS }, keepAsking));
  return { times, perSecond: (times.length * 1_000) / (performance.now() - began) };
}

/** Sends requests at a constant rate, independent of responses. */
async function offer({ ask }: Clients, perSecond: number, seconds: number): Promise<Outcome> {
  const admitted: number[] = [];
  const rejected: number[] = [];
  const underWay = new Set<Promise<void>>();
  let sent = 0;
  async function askOnce(): Promise<void> {
    const began = performance.now();
    const status = await ask();
    if (status === undefined) return;
    sent += 1;
    (status === 200 ? admitted : rejected).push(performance.now() - began);
  }
  const began = performance.now();
  for (let due = 0; performance.now() - began < seconds * 1_000; await setTimeout(1)) {
    for (const now = ((performance.now() - began) * perSecond) / 1_000; due < now; due += 1) {
      const asked = askOnce();
      underWay.add(asked);
      void asked.finally(() => underWay.delete(asked));
    }
  }
  const took = (performance.now() - began) / 1_000;
  await Promise.all(underWay);
  return { offered: sent / took, admitted: latenciesOf(admitted), rejected: latenciesOf(rejected) };
}

async function recover({ ask }: Clients, quick: number): Promise<number> {
  const began = performance.now();
  let recovered = began;
  for (let inARow = 0; inARow < QUICK_ANSWERS_IN_A_ROW; ) {
    const sent = performance.now();
    const status = await ask();
    const isQuick = status === 200 && performance.now() - sent <= quick;
    inARow = isQuick ? inARow + 1 : 0;
    if (!isQuick) recovered = performance.now();
    if (performance.now() - began > RECOVERS_WITHIN_S * 1_000) return RECOVERS_WITHIN_S;
  }
  return (recovered - began) / 1_000;
}

/** Returns the bounds that the figures break, in words. */
export function overloadFaults(figures: OverloadFigures, factor: number, limits = OVERLOAD_LIMITS): string[] {
  const { capacity, full, overloaded, recovery, problems } = figures;
  const { offered, admitted, rejected } = overloaded;
  return [
    ...problems,
    ...(offered >= capacity * factor * limits.offered
      ? []
      : [`only ${Math.round(offered)} requests per second could be sent`]),
    ...(admitted.p99 <= full.p99 * limits.slower ? [] : ['admitted requests took too long']),
    ...(rejected.count > 0 ? [] : ['no request was rejected']),
    ...(rejected.p99 <= full.p99 * limits.slower ? [] : ['rejections took too long']),
    ...(recovery <= limits.recovery ? [] : ['the recovery took too long']),
  ];
}

if (import.meta.main) {
  const values = readFlags(
    'Sends the service more than its capacity. Measures the admitted requests, the rejections and the recovery.',
    {
      seconds: { type: 'string', default: '30', about: 'duration of the overload' },
      factor: { type: 'string', default: '10', about: 'ratio of the load to the capacity' },
    },
  );
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  const factor = Number(values.factor);
  const figures = await measureOverload({ seconds: Number(values.seconds), factor, report: write });
  const faults = overloadFaults(figures, factor);
  for (const fault of faults) write(fault);
  if (faults.length > 0) process.exitCode = 1;
}
