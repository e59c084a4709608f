/**
 * Runs three instances behind a real HAProxy with deploy/haproxy.cfg, on a new PostgreSQL, under load, and reports
 * the results. Needs `haproxy` (`apt-get install haproxy`, `brew install haproxy`).
 *
 *     npx node deploy/try-haproxy.ts --help
 *
 * First, clients change the same plants through the proxy, and their history must be linearizable. Then load runs
 * while the instances are restarted one by one, while one is killed, and while PostgreSQL crashes and restarts.
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

/** Debian installs HAProxy in a folder that is not in the PATH of most users. */
export const HAPROXY =
  ['haproxy', '/usr/sbin/haproxy'].find((path) => spawnSync(path, ['-v']).error === undefined) ?? 'haproxy';

/** Time for the proxy to notice that an instance is ready again. */
const PROXY_CHECK_MS = 1_500;

interface Address {
  readonly port: number;
  readonly adminPort: number;
}

/** A port for TLS, and a PEM file with its certificate and key. */
interface TlsBind {
  readonly port: number;
  readonly file: string;
}

/** Renders deploy/haproxy.cfg with addresses of this machine instead of those of the compose file. */
export async function renderHaproxyConfig(
  port: number,
  instances: readonly Address[],
  tls?: TlsBind,
): Promise<string> {
  const shipped = await readFile(new URL('haproxy.cfg', import.meta.url), 'utf8');
  let config = replaceOnce(shipped, 'bind :8080', `bind 127.0.0.1:${port}`);
  if (tls !== undefined) {
    const bind = `bind 127.0.0.1:${tls.port} ssl crt ${tls.file}`;
    config = replaceOnce(config, '# bind :8443 ssl crt /etc/haproxy/plants.pem', bind);
  }
  config = replaceOnce(config, 'default-server check port 8081', 'default-server check');
  // Fits a limit of 1,024 open files: HAProxy needs two for each connection, or does not start.
  config = replaceOnce(config, 'maxconn 4000', 'maxconn 400');
  for (const [index, instance] of instances.entries()) {
    const name = `plant-store-${index + 1}`;
    const address = `127.0.0.1:${instance.port} port ${instance.adminPort}`;
    config = replaceOnce(config, `server ${name} ${name}:8080`, `server ${name} ${address}`);
  }
  return config;
}

function replaceOnce(text: string, old: string, replacement: string): string {
  const parts = text.split(old);
  if (parts.length !== 2) throw new Error(`haproxy.cfg must contain "${old}" once`);
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
    const response = await fetch(url).catch(() => undefined);
    await response?.body?.cancel();
    if (response?.ok === true) return;
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
  /** 0 when no response arrived. */
  readonly status: number;
  readonly body: string;
}

/** Results of the load in one phase. */
interface Tally {
  requests: number;
  /** The number of unexpected responses, by method, status and body. */
  readonly failures: Map<string, number>;
  slowestMs: number;
}

function newTally(): Tally {
  return { requests: 0, failures: new Map(), slowestMs: 0 };
}

interface Load {
  /** Ids of plants that were acknowledged and not deleted. */
  readonly acknowledged: readonly number[];
  /** Runs `work` under load. Resolves to the results of the load. */
  during(work: () => Promise<void>): Promise<Tally>;
  stop(): Promise<void>;
}

/** Starts clients that create, list and delete through the proxy until `stop`. Each has separate plants. */
function startLoad(port: number, token: string, clients: number): Load {
  const agent = new Agent({ keepAlive: true, maxSockets: clients });
  const acknowledged: number[] = [];
  let tally = newTally();
  let isRunning = true;

  async function send(message: Message, expected: number): Promise<number> {
    const phase = tally;
    const begin = performance.now();
    const { status, body } = await exchange(message, { port, token, agent });
    phase.requests += 1;
    phase.slowestMs = Math.max(phase.slowestMs, performance.now() - begin);
    if (status !== expected) {
      const how = message.idempotencyKey === undefined ? '' : ' with a key';
      const what = `${message.method}${how} ${status} ${body.slice(0, 120)}`;
      phase.failures.set(what, (phase.failures.get(what) ?? 0) + 1);
      // Shorter than the Retry-After of the responses.
      await setTimeout(20);
    }
    return status;
  }

  async function runClient(index: number): Promise<void> {
    for (let round = 0; isRunning; round += 1) {
      const id = index * 1_000_000_000 + round;
      const creation = { method: 'POST', path: '/plants', body: JSON.stringify({ id, name: `plant ${id}` }) };
      const created = await send(
        round % 2 === 0 ? { ...creation, idempotencyKey: `key-${id}` } : creation,
        200,
      );
      await send({ method: 'GET', path: '/plants?limit=5' }, 200);
      if (created !== 200) continue;
      if (round % 3 === 0) await send({ method: 'DELETE', path: `/plants/${id}` }, 204);
      else acknowledged.push(id);
    }
  }

  const done = Promise.all(Array.from({ length: clients }, (_, index) => runClient(index)));
  return {
    acknowledged,
    during: async (work) => {
      tally = newTally();
      const phase = tally;
      await work();
      return phase;
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

/** Sends a message and resolves to its response, or to status 0 if none arrived. */
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

/** Starts HAProxy with its files in a folder. Its log and warnings go to the file descriptor `log`. */
export async function startHaproxy(
  folder: string,
  port: number,
  instances: readonly Address[],
  { log = 'ignore', tls }: { readonly log?: number | 'ignore'; readonly tls?: TlsBind } = {},
): Promise<ChildProcess> {
  const file = join(folder, 'haproxy.cfg');
  await writeFile(file, await renderHaproxyConfig(port, instances, tls));
  // Quiet, HAProxy closes its output.
  const args = [...(log === 'ignore' ? ['-q'] : []), '-f', file];
  const proxy = spawn(HAPROXY, args, { stdio: ['ignore', log, log === 'ignore' ? 'inherit' : log] });
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

/** Counts the plants that an instance lists. */
async function countListed(instance: Address, token: string): Promise<number> {
  const answer = await fetch(`http://127.0.0.1:${instance.port}/plants`, {
    headers: { authorization: `Bearer ${token}` },
  });
  const plants: unknown = await answer.json();
  if (!Array.isArray(plants)) throw new Error('the list is not an array');
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

/** Records a history and checks it. Reads repeat once per instance, since the proxy balances them. */
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
    process.stdout.write(`${spawnSync(HAPROXY, ['-v'], { encoding: 'utf8' }).stdout.split('\n', 1)[0]}\n`);
    await judgeHistory(port, await createToken('bob', postgres.url()), clients, seconds);
    const load = startLoad(port, token, clients);
    const phase = async (name: string, work: () => Promise<void>): Promise<void> => {
      const begin = performance.now();
      const tally = await load.during(work);
      report(name, (performance.now() - begin) / 1_000, tally);
    };

    await phase(`${clients} clients, no faults`, () => setTimeout(seconds * 1_000));
    for (const [index, instance] of instances.entries())
      process.stdout.write(`    instance ${index + 1} answered ${await requestsAnswered(instance)}\n`);
    await phase(`${rolls} rolling restarts (SIGTERM, one instance after another)`, async () => {
      for (const instance of Array.from({ length: rolls }, () => instances).flat()) {
        await stop(instance.process);
        instance.process = await startInstance(instance, postgres.url());
        await setTimeout(PROXY_CHECK_MS);
      }
    });
    await phase('one instance killed (SIGKILL) and started again', async () => {
      const [instance] = instances;
      if (instance === undefined) return;
      await stop(instance.process, 'SIGKILL');
      await setTimeout(PROXY_CHECK_MS);
      instance.process = await startInstance(instance, postgres.url());
      await setTimeout(PROXY_CHECK_MS);
    });
    await phase('PostgreSQL crashed (immediate), 2 s down, started again', async () => {
      await postgres.stop('immediate');
      await setTimeout(2_000);
      await postgres.start();
      const back = performance.now();
      await untilReady(`http://127.0.0.1:${port}/openapi.json`);
      process.stdout.write(
        `    the proxy forwards requests again after ${Math.round(performance.now() - back)} ms\n`,
      );
      await setTimeout(PROXY_CHECK_MS);
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
    `${acknowledged.length.toLocaleString('en')} acknowledged plants, ${lost} lost; ` +
      `${kept.size} in PostgreSQL, ${listed.join(', ')} listed by the instances\n`,
  );
  if (lost > 0) process.exitCode = 1;
}

if (import.meta.main) {
  const values = readFlags(
    'Restarts the instances of deploy/ one by one under load, and reports lost writes.',
    {
      clients: { type: 'string', default: '32', about: 'number of concurrent clients' },
      seconds: { type: 'string', default: '30', about: 'length of the first phases, in seconds' },
      rolls: { type: 'string', default: '1', about: 'number of restarts of each instance' },
    },
  );
  if (spawnSync(HAPROXY, ['-v']).error === undefined)
    await tryHaproxy(Number(values.clients), Number(values.seconds), Number(values.rolls));
  else {
    process.stderr.write('haproxy is not installed: `apt-get install haproxy` or `brew install haproxy`\n');
    process.exitCode = 1;
  }
}
