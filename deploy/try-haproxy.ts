/**
 * Runs three instances behind a real HAProxy with deploy/haproxy.cfg, on one fresh PostgreSQL, under load, and says
 * what came of it. Needs `haproxy` (`apt-get install haproxy`, `brew install haproxy`).
 *
 *     npx node deploy/try-haproxy.ts --help
 *
 * First, what clients that fight for the same plants see through the proxy is judged: it must be linearizable. Then load
 * goes on while the instances are restarted one after another, while one is killed, and while PostgreSQL crashes and
 * comes back.
 */
import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { describeRecording, recordWorkload } from '../test/long/instances.ts';
import { describeViolation, findViolation } from '../test/support/linearizability.ts';
import { readFlags } from '../test/support/script-flags.ts';
import { freePort } from '../test/support/servers/free-port.ts';
import { startPostgres } from '../test/support/servers/postgres-server.ts';

const run = promisify(execFile);

const MAIN = join(import.meta.dirname, '../bin/plant-store.js');
const INSTANCES = 3;

/** How long the proxy may take to see that an instance is back. */
const SEEN_MS = 1_500;

interface Address {
  readonly port: number;
  readonly adminPort: number;
}

/** deploy/haproxy.cfg with the addresses of this machine in the places of those of the compose file. */
export async function renderHaproxyConfig(port: number, instances: readonly Address[]): Promise<string> {
  const shipped = await readFile(new URL('haproxy.cfg', import.meta.url), 'utf8');
  let config = replaceOnce(shipped, 'bind :8080', `bind 127.0.0.1:${port}`);
  config = replaceOnce(config, 'default-server check port 8081', 'default-server check');
  for (const [index, instance] of instances.entries()) {
    const name = `plant-store-${index + 1}`;
    const address = `127.0.0.1:${instance.port} port ${instance.adminPort}`;
    config = replaceOnce(config, `server ${name} ${name}:8080`, `server ${name} ${address}`);
  }
  return config;
}

function replaceOnce(text: string, old: string, replacement: string): string {
  const parts = text.split(old);
  if (parts.length !== 2) throw new Error(`haproxy.cfg should have "${old}" once`);
  return parts.join(replacement);
}

interface Instance extends Address {
  process: ChildProcess;
}

async function startInstance(address: Address, databaseUrl: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, [MAIN, 'serve'], {
    env: {
      ...process.env,
      NODE_ENV: 'production',
      DATABASE_URL: databaseUrl,
      PORT: String(address.port),
      ADMIN_PORT: String(address.adminPort),
      LOG_LEVEL: 'error',
      STOP_DELAY: '3000',
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  await untilReady(`http://127.0.0.1:${address.adminPort}/ready`);
  return child;
}

async function untilReady(url: string): Promise<void> {
  for (let tries = 0; tries < 300; tries += 1) {
    const answer = await fetch(url).catch(() => undefined);
    await answer?.body?.cancel();
    if (answer?.ok === true) return;
    await setTimeout(50);
  }
  throw new Error(`${url} is not ready after 15 s`);
}

export async function stop(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill(signal);
  await exited;
}

interface Answer {
  /** 0 when no answer came at all. */
  readonly status: number;
  readonly body: string;
}

/** What the load saw in one phase. */
interface Tally {
  requests: number;
  /** Answers other than those a healthy service gives, by what they were. */
  readonly failures: Map<string, number>;
  slowestMs: number;
}

function newTally(): Tally {
  return { requests: 0, failures: new Map(), slowestMs: 0 };
}

interface Load {
  /** Ids of plants whose creation was acknowledged and which nobody tried to delete. */
  readonly acknowledged: readonly number[];
  /** Resolves to what the load saw while some work was done. */
  during(work: () => Promise<void>): Promise<Tally>;
  stop(): Promise<void>;
}

/** Clients that create, list and delete through the proxy, each with plants of its own, until told to stop. */
function startLoad(port: number, token: string, clients: number): Load {
  const agent = new Agent({ keepAlive: true, maxSockets: clients });
  const acknowledged: number[] = [];
  let tally = newTally();
  let isRunning = true;

  async function send(message: Message, expected: number): Promise<number> {
    const seenBy = tally;
    const begin = performance.now();
    const { status, body } = await exchange(message, { port, token, agent });
    seenBy.requests += 1;
    seenBy.slowestMs = Math.max(seenBy.slowestMs, performance.now() - begin);
    if (status !== expected) {
      const how = message.idempotencyKey === undefined ? '' : ' with a key';
      const what = `${message.method}${how} ${status} ${body.slice(0, 120)}`;
      seenBy.failures.set(what, (seenBy.failures.get(what) ?? 0) + 1);
      // As the Retry-After of the answers would have it, only more impatient.
      await setTimeout(20);
    }
    return status;
  }

  async function runClient(index: number): Promise<void> {
    for (let turn = 0; isRunning; turn += 1) {
      const id = index * 1_000_000_000 + turn;
      const creation = { method: 'POST', path: '/plants', body: JSON.stringify({ id, name: `plant ${id}` }) };
      const created = await send(
        turn % 2 === 0 ? { ...creation, idempotencyKey: `key-${id}` } : creation,
        200,
      );
      await send({ method: 'GET', path: '/plants?limit=5' }, 200);
      if (created !== 200) continue;
      if (turn % 3 === 0) await send({ method: 'DELETE', path: `/plants/${id}` }, 204);
      else acknowledged.push(id);
    }
  }

  const done = Promise.all(Array.from({ length: clients }, (_, index) => runClient(index)));
  return {
    acknowledged,
    during: async (work) => {
      tally = newTally();
      const seen = tally;
      await work();
      return seen;
    },
    stop: async () => {
      isRunning = false;
      await done;
      agent.destroy();
    },
  };
}

interface Message {
  readonly method: string;
  readonly path: string;
  readonly body?: string;
  readonly idempotencyKey?: string;
}

/** Sends a message and resolves to its answer, also where none came. */
function exchange(
  { method, path, body, idempotencyKey }: Message,
  { port, token, agent }: { readonly port: number; readonly token: string; readonly agent: Agent },
): Promise<Answer> {
  return new Promise((resolve) => {
    const headers = {
      authorization: `Bearer ${token}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(idempotencyKey !== undefined && { 'idempotency-key': idempotencyKey }),
    };
    const outgoing = request({ agent, host: '127.0.0.1', port, method, path, headers });
    outgoing.once('response', (response) => {
      text(response).then(
        (received) => resolve({ status: response.statusCode ?? 0, body: received }),
        (error: unknown) => resolve({ status: 0, body: `cut off: ${String(error)}` }),
      );
    });
    outgoing.once('error', (error) => resolve({ status: 0, body: error.message }));
    outgoing.end(body);
  });
}

export async function startHaproxy(
  folder: string,
  port: number,
  instances: readonly Address[],
): Promise<ChildProcess> {
  const file = join(folder, 'haproxy.cfg');
  await writeFile(file, await renderHaproxyConfig(port, instances));
  const proxy = spawn('haproxy', ['-q', '-f', file], { stdio: ['ignore', 'ignore', 'inherit'] });
  await untilReady(`http://127.0.0.1:${port}/openapi.json`);
  return proxy;
}

function report(phase: string, seconds: number, { requests, failures, slowestMs }: Tally): void {
  const failed = [...failures.values()].reduce((sum, count) => sum + count, 0);
  const rate = Math.round(requests / seconds).toLocaleString('en');
  process.stdout.write(
    `${phase}: ${requests.toLocaleString('en')} requests in ${seconds.toFixed(1)} s (${rate}/s), ` +
      `${failed} failed, slowest ${Math.round(slowestMs)} ms\n`,
  );
  for (const [what, count] of failures) process.stdout.write(`    ${count} × ${what}\n`);
}

/** Every id that one instance lists. */
async function countListed(instance: Address, token: string): Promise<number> {
  const answer = await fetch(`http://127.0.0.1:${instance.port}/plants`, {
    headers: { authorization: `Bearer ${token}` },
  });
  const plants: unknown = await answer.json();
  if (!Array.isArray(plants)) throw new Error('the list is no array');
  return plants.length;
}

async function requestsAnswered(instance: Address): Promise<number> {
  const metrics = await (await fetch(`http://127.0.0.1:${instance.adminPort}/metrics`)).text();
  const counts = metrics.matchAll(/^plant_store_http_request_duration_seconds_count\{.*\} ([0-9]+)$/gm);
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}

async function createToken(owner: string, databaseUrl: string): Promise<string> {
  const { stdout } = await run(process.execPath, [MAIN, 'token', 'create', owner], {
    env: { ...process.env, DATABASE_URL: databaseUrl },
  });
  return stdout.trim();
}

/** Whoever looks for a plant asks as often as there are instances, over which the proxy spreads it. */
async function judgeHistory(port: number, token: string, clients: number, seconds: number): Promise<void> {
  const fronts = Array.from({ length: INSTANCES }, () => ({ url: `http://127.0.0.1:${port}` }));
  const recording = await recordWorkload({ fronts, token, clients, hotPlants: 8, seconds });
  const violation = findViolation(recording.operations);
  process.stdout.write(`${describeRecording(recording)}\n`);
  process.stdout.write(`${violation === undefined ? 'linearizable' : describeViolation(violation)}\n`);
  if (violation !== undefined || recording.unseen.length + recording.surprises.length > 0)
    process.exitCode = 1;
}

async function tryHaproxy(clients: number, seconds: number, rolls: number): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-haproxy-'));
  const postgres = await startPostgres();
  const instances: Instance[] = [];
  let proxy: ChildProcess | undefined;
  try {
    for (let count = 0; count < INSTANCES; count += 1) {
      const address = { port: await freePort(), adminPort: await freePort() };
      instances.push({ ...address, process: await startInstance(address, postgres.url()) });
    }
    const token = await createToken('alice', postgres.url());
    const port = await freePort();
    proxy = await startHaproxy(folder, port, instances);
    process.stdout.write(`${spawnSync('haproxy', ['-v'], { encoding: 'utf8' }).stdout.split('\n', 1)[0]}\n`);
    await judgeHistory(port, await createToken('bob', postgres.url()), clients, seconds);
    const load = startLoad(port, token, clients);
    const phase = async (name: string, work: () => Promise<void>): Promise<void> => {
      const begin = performance.now();
      const tally = await load.during(work);
      report(name, (performance.now() - begin) / 1_000, tally);
    };

    await phase(`${clients} clients, nothing happens`, () => setTimeout(seconds * 1_000));
    for (const [index, instance] of instances.entries())
      process.stdout.write(`    instance ${index + 1} answered ${await requestsAnswered(instance)}\n`);
    await phase(`${rolls} rolling restarts (SIGTERM, one instance after another)`, async () => {
      for (const instance of Array.from({ length: rolls }, () => instances).flat()) {
        await stop(instance.process);
        instance.process = await startInstance(instance, postgres.url());
        await setTimeout(SEEN_MS);
      }
    });
    await phase('one instance killed (SIGKILL) and started again', async () => {
      const [instance] = instances;
      if (instance === undefined) return;
      await stop(instance.process, 'SIGKILL');
      await setTimeout(SEEN_MS);
      instance.process = await startInstance(instance, postgres.url());
      await setTimeout(SEEN_MS);
    });
    await phase('PostgreSQL crashed (immediate), 2 s away, started again', async () => {
      await postgres.stop('immediate');
      await setTimeout(2_000);
      await postgres.start();
      const back = performance.now();
      await untilReady(`http://127.0.0.1:${port}/openapi.json`);
      process.stdout.write(
        `    the proxy passes requests again ${Math.round(performance.now() - back)} ms after it\n`,
      );
      await setTimeout(SEEN_MS);
    });
    await phase('afterwards', () => setTimeout(3_000));
    await load.stop();
    await reportLost(load, postgres, instances, token);
  } finally {
    if (proxy !== undefined) await stop(proxy);
    await Promise.all(instances.map((instance) => stop(instance.process)));
    await postgres.remove();
    await rm(folder, { recursive: true, force: true });
  }
}

async function reportLost(
  { acknowledged }: Load,
  postgres: Awaited<ReturnType<typeof startPostgres>>,
  instances: readonly Address[],
  token: string,
): Promise<void> {
  const rows = await postgres.sql("SELECT id FROM plants WHERE owner = 'alice'");
  const kept = new Set(rows.map(({ id }) => Number(id)));
  const lost = acknowledged.filter((id) => !kept.has(id)).length;
  const listed = await Promise.all(instances.map((instance) => countListed(instance, token)));
  process.stdout.write(
    `${acknowledged.length.toLocaleString('en')} acknowledged plants to be kept, ${lost} lost; ` +
      `${kept.size} in PostgreSQL, ${listed.join(', ')} listed by the instances\n`,
  );
  if (lost > 0) process.exitCode = 1;
}

if (import.meta.main) {
  const values = readFlags(
    'Stops and starts the instances of deploy/ one after the other under load, and tells whether anything is lost.',
    {
      clients: { type: 'string', default: '32', about: 'how many ask at once' },
      seconds: { type: 'string', default: '30', about: 'how long nothing happens at first' },
      rolls: { type: 'string', default: '1', about: 'how often each instance is stopped' },
    },
  );
  if (spawnSync('haproxy', ['-v']).error === undefined)
    await tryHaproxy(Number(values.clients), Number(values.seconds), Number(values.rolls));
  else {
    process.stderr.write('haproxy is not installed: `apt-get install haproxy` or `brew install haproxy`\n');
    process.exitCode = 1;
  }
}
