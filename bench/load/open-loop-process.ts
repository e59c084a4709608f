import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import type { Job, Tally } from './generator.ts';
import { createIds } from './ids.ts';
import { percentile } from './percentile.ts';

/** The requests of a millisecond are due together, at its beginning. */
const TICK_MS = 1;

/** How long the answers to the last requests may take. */
const LINGER_MS = 5_000;

interface Connection {
  readonly socket: Socket;
  /** When the request under way was due; undefined between requests. */
  due: number | undefined;
  received: string;
}

const perSecond = Number(process.argv[2]);
const job: Job = JSON.parse(process.argv[3] ?? '');
process.stdout.write(`${JSON.stringify(await run(job, perSecond))}\n`);
process.exit();

async function run({ url, connections, seconds }: Job, perSecond: number): Promise<Tally> {
  const { hostname, port, host } = new URL(url);
  const nextMessage = createMessages(host);
  const latencies: number[] = [];
  const waiting: number[] = [];
  let failures = 0;
  let taken = 0;
  const all = await Promise.all(Array.from({ length: connections }, () => open(hostname, Number(port))));
  const idle = [...all];
  for (const connection of all) connection.socket.on('data', (text: string) => receive(connection, text));

  function receive(connection: Connection, text: string): void {
    connection.received += text;
    if (!isComplete(connection.received) || connection.due === undefined) return;
    latencies.push(performance.now() - connection.due);
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
  for (let tick = 0; tick < (seconds * 1_000) / TICK_MS; tick += 1) {
    const due = begin + tick * TICK_MS;
    const early = due - performance.now();
    if (early > 0) await setTimeout(early);
    const upToNow = Math.round((((tick + 1) * TICK_MS) / 1_000) * perSecond);
    while (waiting.length < upToNow) waiting.push(due);
    send();
  }
  const deadline = performance.now() + LINGER_MS;
  while (latencies.length < waiting.length && performance.now() < deadline) await setTimeout(TICK_MS);
  const { user, system } = process.cpuUsage(cpuBefore);
  latencies.sort((a, b) => a - b);
  return {
    answers: latencies.length,
    seconds: (performance.now() - begin) / 1_000,
    p50Ms: percentile(latencies, 0.5),
    p99Ms: percentile(latencies, 0.99),
    failures: failures + waiting.length - latencies.length,
    cpuSeconds: (user + system) / 1e6,
  };
}

async function open(host: string, port: number): Promise<Connection> {
  const socket = connect({ host, port, noDelay: true });
  await once(socket, 'connect');
  socket.setEncoding('latin1');
  return { socket, due: undefined, received: '' };
}

/** The messages of the job, which has one kind of request. */
function createMessages(host: string): () => string {
  const [request] = job.requests;
  if (request === undefined) throw new Error('the job has no requests');
  const nextId = createIds(job.ids);
  const headers = Object.entries(job.headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return () => {
    const id = String(nextId());
    const body = request.body.replace('{id}', id);
    const content = body === '' ? '' : `content-type: application/json\r\ncontent-length: ${body.length}\r\n`;
    const line = `${request.method} ${request.target.replace('{id}', id)} HTTP/1.1\r\nhost: ${host}\r\n`;
    return `${line}${headers.join('')}${content}\r\n${body}`;
  };
}

function isComplete(message: string): boolean {
  const end = message.indexOf('\r\n\r\n');
  if (end < 0) return false;
  const length = /\r\ncontent-length: *(\d+)/i.exec(message.slice(0, end))?.[1] ?? 0;
  return message.length >= end + 4 + Number(length);
}
