import { setTimeout } from 'node:timers/promises';
import { openWire, type Wire } from '../support/clients/raw-connection.ts';
import { headerOf, type RawAnswer } from '../support/clients/raw-http.ts';
import { describeLatencies, type Latencies, latenciesOf } from '../support/latencies.ts';
import { newInstallation } from '../support/program.ts';
import { readFlags } from '../support/script-flags.ts';
import { fillStore } from './long-list.ts';

interface OverloadOptions {
  /** How long the load is more than the service can take. */
  readonly seconds: number;
  /** How many times more. */
  readonly factor: number;
  readonly report: (line: string) => void;
}

export interface OverloadFigures {
  /** Answers a second at full load. */
  readonly capacity: number;
  /** Times at full load, in milliseconds. */
  readonly full: Latencies;
  readonly overloaded: Outcome;
  /** Seconds from the end of the overload until every answer was as quick as at full load again. */
  readonly recovery: number;
  readonly problems: readonly string[];
}

/** What became of the requests of an overload. */
interface Outcome {
  /** Requests a second that were sent. */
  readonly offered: number;
  readonly admitted: Latencies;
  readonly refused: Latencies;
}

/**
 * What is promised: how many times slower than at full load the admitted may be, and in how many seconds all is well again;
 * and how much of the load must really have been there.
 */
const OVERLOAD_LIMITS = { slower: 3, recovery: 5, offered: 0.9 };

/** As many as the service admits at once by default. */
const FULL_CONNECTIONS = 256;
const CONNECTIONS = 4_000;
const PLANTS = 5_000;
const RECOVERS_WITHIN_S = 20;
const QUICK_ANSWERS_IN_A_ROW = 50;

/** Offers a service many times the load it can take, and measures what it makes of it. */
export async function measureOverload({
  seconds,
  factor,
  report,
}: OverloadOptions): Promise<OverloadFigures> {
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const token = await installation.token('alice');
  await fillStore(installation.databaseUrl, 'alice', PLANTS, 20);
  const service = await installation.serve({
    env: { NODE_ENV: 'production' },
    remembers: ({ msg, level }) => msg === 'serving' || Number(level) >= 50,
  });
  // Costly for the service and not for who asks: nobody could offer ten times as many of the cheap ones.
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
  report(`refused: ${describeLatencies(overloaded.refused)}`);

  const recovery = await recover(clients, full.p99);
  report(`recovered after ${recovery.toFixed(1)} s`);
  clients.close();
  const { code } = await service.stop();
  if (code !== 0) problems.push(`exit code ${code}`);
  for (const line of service.log) if (line.msg !== 'serving') problems.push(JSON.stringify(line));
  return { capacity, full, overloaded, recovery, problems: [...new Set(problems)].slice(0, 10) };
}

interface Clients {
  /** Sends a request on a free connection; resolves to its status, or undefined when there is no connection left for it. */
  ask(): Promise<number | undefined>;
  close(): void;
}

async function connectClients(
  url: string,
  request: string,
  onProblem: (problem: string) => void,
): Promise<Clients> {
  // All there before the load, as a proxy keeps its connections too.
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
      if (answer === undefined) throw new Error('a connection was closed without an answer');
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

/** A connection that had its first answer: one that never sent anything would be closed soon. */
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

/** As many clients as there can be without one being refused, each with one request after the other. */
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

/** Sends requests at a rate that does not wait for answers. */
async function offer({ ask }: Clients, perSecond: number, seconds: number): Promise<Outcome> {
  const admitted: number[] = [];
  const refused: number[] = [];
  const underWay = new Set<Promise<void>>();
  let sent = 0;
  async function askOnce(): Promise<void> {
    const began = performance.now();
    const status = await ask();
    if (status === undefined) return;
    sent += 1;
    (status === 200 ? admitted : refused).push(performance.now() - began);
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
  return { offered: sent / took, admitted: latenciesOf(admitted), refused: latenciesOf(refused) };
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

/** What is wrong with the figures, in words. */
export function overloadFaults(figures: OverloadFigures, factor: number, limits = OVERLOAD_LIMITS): string[] {
  const { capacity, full, overloaded, recovery, problems } = figures;
  const { offered, admitted, refused } = overloaded;
  return [
    ...problems,
    ...(offered >= capacity * factor * limits.offered
      ? []
      : [`only ${Math.round(offered)} requests a second could be offered`]),
    ...(admitted.p99 <= full.p99 * limits.slower ? [] : ['what was admitted took too long']),
    ...(refused.count > 0 ? [] : ['nothing was refused']),
    ...(refused.p99 <= full.p99 * limits.slower ? [] : ['what was refused had to wait for it']),
    ...(recovery <= limits.recovery ? [] : ['it took too long to recover']),
  ];
}

if (import.meta.main) {
  const values = readFlags(
    'Offers the service more than it can take: how long what is admitted takes, and when all is well again.',
    {
      seconds: { type: 'string', default: '30', about: 'how long the overload lasts' },
      factor: { type: 'string', default: '10', about: 'how many times what the service can take' },
    },
  );
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  const factor = Number(values.factor);
  const figures = await measureOverload({ seconds: Number(values.seconds), factor, report: write });
  const faults = overloadFaults(figures, factor);
  for (const fault of faults) write(fault);
  if (faults.length > 0) process.exitCode = 1;
}
