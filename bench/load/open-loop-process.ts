import { once } from 'node:events';
import { createConnection, type Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import type { Job, LoadResult } from './generator.ts';
import { createIds } from './ids.ts';
import { COLD_SECONDS } from './open-loop.ts';
import { percentile } from './percentile.ts';

/** Milliseconds between two sends: all requests of this interval are due at its start. */
const TICK_MS = 1;

/** Max milliseconds to wait for the last responses after the last send. */
const LAST_RESPONSES_MS = 5_000;

interface Connection {
  readonly socket: Socket;
  /** Due time of the request in flight; undefined if there is none. */
  due: number | undefined;
  /** The received part of an incomplete response. */
  received: string;
}

const perSecond = Number(process.argv[2]);
const job: Job = JSON.parse(process.argv[3] ?? '');
process.stdout.write(`${JSON.stringify(await run(job, perSecond))}\n`);
process.exit();

async function run({ url, connections, seconds }: Job, perSecond: number): Promise<LoadResult> {
  const { hostname, port, host } = new URL(url);
  const nextMessage = createMessages(host);
  const latencies: number[] = [];
  const waiting: number[] = [];
  let answers = 0;
  let failures = 0;
  let measuredFrom = 0;
  let scheduled = 0;
  let taken = 0;
  const idle = await Promise.all(
    Array.from({ length: connections }, () => open(hostname, Number(port), receive)),
  );

  function receive(connection: Connection, text: string): void {
    connection.received += text;
    if (!isComplete(connection.received) || connection.due === undefined) return;
    answers += 1;
    if (connection.due >= measuredFrom) latencies.push(performance.now() - connection.due);
    if (Number(connection.received.slice(9, 12)) >= 400) failures += 1;
    connection.received = '';
    connection.due = undefined;
    idle.push(connection);
    send();
  }

  function send(): void {
    while (taken < waiting.length) {
      const connection = idle.pop();
      if (connection === undefined) return;
      connection.due = waiting[taken];
      taken += 1;
      connection.socket.write(nextMessage(), 'latin1');
    }
  }

  const cpuBefore = process.cpuUsage();
  const begin = performance.now();
  measuredFrom = begin + COLD_SECONDS * 1_000;
  for (let tick = 0; tick < (seconds * 1_000) / TICK_MS; tick += 1) {
    const due = begin + tick * TICK_MS;
    const early = due - performance.now();
    if (early > 0) await setTimeout(early);
    const upToNow = Math.round((((tick + 1) * TICK_MS) / 1_000) * perSecond);
    for (; scheduled < upToNow; scheduled += 1) waiting.push(due);
    send();
    if (due < measuredFrom) waiting.length = taken;
  }
  const deadline = performance.now() + LAST_RESPONSES_MS;
  while (answers < waiting.length && performance.now() < deadline) await setTimeout(TICK_MS);
  const { user, system } = process.cpuUsage(cpuBefore);
  latencies.sort((a, b) => a - b);
  return {
    answers,
    seconds: (performance.now() - begin) / 1_000,
    p50Ms: percentile(latencies, 0.5),
    p99Ms: percentile(latencies, 0.99),
    p999Ms: percentile(latencies, 0.999),
    failures: failures + waiting.length - answers,
    cpuSeconds: (user + system) / 1e6,
  };
}

/**
 * Opens a connection that reads into one buffer, without Node streams. This leaves more CPU time to the
 * server.
 */
async function open(
  host: string,
  port: number,
  onText: (connection: Connection, text: string) => void,
): Promise<Connection> {
  const buffer = Buffer.allocUnsafe(16_384);
  const callback = (bytes: number): boolean => {
    onText(connection, buffer.toString('latin1', 0, bytes));
    return true;
  };
  const socket = createConnection({ host, port, noDelay: true, onread: { buffer, callback } });
  const connection: Connection = { socket, due: undefined, received: '' };
  await once(socket, 'connect');
  return connection;
}

/** Returns a function that renders the next request as text. It uses only the job's first kind of request. */
function createMessages(host: string): () => string {
  const [request] = job.requests;
  if (request === undefined) throw new Error('the job has no requests');
  const { method, target, idempotencyKey, body } = request;
  const nextId = createIds(job.ids);
  const headers = Object.entries({ host, ...job.headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  const head = headers.join('');
  return () => {
    const id = String(nextId());
    const key =
      idempotencyKey === undefined ? '' : `idempotency-key: ${idempotencyKey.replace('{id}', id)}\r\n`;
    const line = `${method} ${target.replace('{id}', id)} HTTP/1.1\r\n${head}${key}`;
    if (body === '') return `${line}\r\n`;
    const content = body.replace('{id}', id);
    return `${line}content-type: application/json\r\ncontent-length: ${content.length}\r\n\r\n${content}`;
  };
}

function isComplete(message: string): boolean {
  const end = message.indexOf('\r\n\r\n');
  if (end < 0) return false;
  const length = /\r\ncontent-length: *(\d+)/i.exec(message)?.[1] ?? 0;
  return message.length >= end + 4 + Number(length);
}
