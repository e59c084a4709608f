/**
 * Creates per second over HTTP, beside what PostgreSQL does with one prepared INSERT a transaction: from pgbench, where
 * that is installed, and through `pg`. All on one fresh PostgreSQL with fsync on, in turns, so that whatever else
 * the machine does befalls all alike.
 *
 *     node bench/pgbench.ts [--rounds 5] [--seconds 4]
 */
import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';
import autocannon from 'autocannon';
import pg from 'pg';
import { type PostgresServer, startPostgres } from '../test/postgres-server.ts';

const run = promisify(execFile);

const CLIENTS = 64;
const TARGET = 1.2;
const PLANT = { name: 'Black alder', tag: 'Alnus glutinosa' };
const MAIN = new URL('../src/cli/main.ts', import.meta.url).pathname;
const OWNER = 'bench';

/** One way of creating plants. */
interface Contender {
  readonly name: string;
  /** Creates plants for some seconds and resolves to how many it created a second. */
  measure(seconds: number): Promise<number>;
}

interface Service {
  readonly url: string;
  readonly process: ChildProcess;
}

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '4' },
    // How this file starts itself: load from a process of its own.
    load: { type: 'string' },
    url: { type: 'string', default: '' },
    token: { type: 'string', default: '' },
  },
});
const seconds = Number(flags.seconds);
if (flags.load === 'inserts') process.stdout.write(`${await insertOneByOne(flags.url)}\n`);
else if (flags.load === 'requests') process.stdout.write(`${await fireRequests(flags.url, flags.token)}\n`);
else await main(Number(flags.rounds));

async function main(rounds: number): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-bench-'));
  const server = await startPostgres();
  let service: Service | undefined;
  try {
    service = await startService(server, folder);
    const contenders = await gatherContenders(server, service, folder);
    process.stdout.write(`${await describe(server)}\n\n`);
    // The first seconds of a program are not what it does later.
    await measureInTurns(contenders, 1, 1, server);
    const results = await measureInTurns(contenders, rounds, seconds, server);
    process.stdout.write(renderTable(contenders, results));
  } finally {
    await stopService(service);
    await server.remove();
    await rm(folder, { recursive: true, force: true });
  }
}

async function describe(server: PostgresServer): Promise<string> {
  const settings = ['server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method'];
  const shown = [];
  for (const setting of settings) {
    const [row] = await server.sql(`SHOW ${setting}`);
    shown.push(`${setting} ${row?.[setting]}`);
  }
  if (!shown.includes('fsync on')) throw new Error('PostgreSQL runs without fsync; that measures nothing');
  return `PostgreSQL: ${shown.join(', ')}; ${CLIENTS} clients, ${seconds} s each`;
}

async function startService(server: PostgresServer, folder: string): Promise<Service> {
  const log = join(folder, 'service.log');
  const file = await open(log, 'a');
  const child = spawn(process.execPath, [MAIN, 'serve'], {
    env: { ...process.env, NODE_ENV: 'production', DATABASE_URL: server.url(), PORT: '0', ADMIN_PORT: '0' },
    stdio: ['ignore', file.fd, 'inherit'],
  });
  await file.close();
  for (let tries = 0; tries < 200 && child.exitCode === null; tries += 1) {
    const url = /"url":"([^"]+)"/.exec(await readFile(log, 'utf8'))?.[1];
    if (url !== undefined) return { url, process: child };
    await setTimeout(50);
  }
  throw new Error(`the service did not start: ${await readFile(log, 'utf8')}`);
}

async function stopService(service: Service | undefined): Promise<void> {
  if (service === undefined || service.process.exitCode !== null) return;
  const exited = once(service.process, 'exit');
  service.process.kill('SIGTERM');
  await exited;
}

async function gatherContenders(
  server: PostgresServer,
  service: Service,
  folder: string,
): Promise<Contender[]> {
  const { stdout } = await run(process.execPath, [MAIN, 'token', 'create', OWNER], {
    env: { ...process.env, DATABASE_URL: server.url() },
  });
  const token = stdout.trim();
  const contenders = [
    isInstalled('wrk')
      ? await wrkContender(service, token, folder)
      : loadContender('plant-store over HTTP (autocannon)', 'requests', service.url, token),
    loadContender('one prepared INSERT through pg', 'inserts', server.url(), ''),
  ];
  if (isInstalled('pgbench')) contenders.push(await pgbenchContender(server, folder));
  return contenders;
}

function isInstalled(program: string): boolean {
  return spawnSync(program, ['--version']).error === undefined;
}

async function wrkContender({ url }: Service, token: string, folder: string): Promise<Contender> {
  const script = join(folder, 'create.lua');
  await writeFile(
    script,
    `wrk.method = 'POST'
     wrk.headers['Authorization'] = 'Bearer ${token}'
     wrk.headers['Content-Type'] = 'application/json'
     local id = 0
     function request()
       id = id + 1
       return wrk.format(nil, nil, nil, string.format('{"id":%d,"name":"${PLANT.name}","tag":"${PLANT.tag}"}', id))
     end`,
  );
  return {
    name: 'plant-store over HTTP (wrk)',
    measure: async (time) => {
      const flags = ['-t', '1', '-c', String(CLIENTS), '-d', String(time), '-s', script, `${url}/plants`];
      const { stdout } = await run('wrk', flags);
      const problem = /Socket errors.*|Non-2xx.*/.exec(stdout)?.[0];
      if (problem !== undefined) throw new Error(`wrk: ${problem}`);
      return Number(/Requests\/sec:\s*([0-9.]+)/.exec(stdout)?.[1]);
    },
  };
}

async function pgbenchContender(server: PostgresServer, folder: string): Promise<Contender> {
  const script = join(folder, 'create.sql');
  await writeFile(
    script,
    `\\set n :n + 1
     \\set id :client_id * 1000000000 + :n
     INSERT INTO plants (owner, id, name, tag) VALUES ('${OWNER}', :id, '${PLANT.name}', '${PLANT.tag}');`,
  );
  const fixed = ['-n', '-M', 'prepared', '-c', String(CLIENTS), '-j', '2', '-D', 'n=0', '-f', script];
  return {
    name: 'pgbench, one prepared INSERT',
    measure: async (time) => {
      const { stdout } = await run('pgbench', [...fixed, '-T', String(time), server.url()]);
      if (!/failed transactions: 0 /.test(stdout)) throw new Error(`pgbench: ${stdout}`);
      return Number(/tps = ([0-9.]+)/.exec(stdout)?.[1]);
    },
  };
}

/** A contender whose load comes from this file, in a process of its own. */
function loadContender(name: string, load: string, url: string, token: string): Contender {
  return {
    name,
    measure: async (time) => {
      const own = ['--load', load, '--url', url, '--token', token, '--seconds', String(time)];
      const { stdout } = await run(process.execPath, [import.meta.filename, ...own]);
      return Number(stdout);
    },
  };
}

async function insertOneByOne(url: string): Promise<number> {
  const clients = Array.from({ length: CLIENTS }, () => new pg.Client({ connectionString: url }));
  await Promise.all(clients.map((client) => client.connect()));
  const begin = performance.now();
  const end = begin + seconds * 1_000;
  const counts = await Promise.all(
    clients.map(async (client, index) => {
      let count = 0;
      for (; performance.now() < end; count += 1) {
        await client.query({
          name: 'create',
          text: 'INSERT INTO plants (owner, id, name, tag) VALUES ($1, $2, $3, $4)',
          values: [OWNER, index * 1_000_000_000 + count, PLANT.name, PLANT.tag],
        });
      }
      return count;
    }),
  );
  const took = (performance.now() - begin) / 1_000;
  await Promise.all(clients.map((client) => client.end()));
  return counts.reduce((sum, count) => sum + count, 0) / took;
}

async function fireRequests(url: string, token: string): Promise<number> {
  let id = 0;
  const result = await autocannon({
    url: `${url}/plants`,
    connections: CLIENTS,
    duration: seconds,
    requests: [
      {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        setupRequest: (request) => {
          id += 1;
          return { ...request, body: JSON.stringify({ id, ...PLANT }) };
        },
      },
    ],
  });
  if (result.non2xx + result.errors > 0)
    throw new Error(`${result.non2xx + result.errors} requests were not answered by 200`);
  return result['2xx'] / result.duration;
}

async function measureInTurns(
  contenders: readonly Contender[],
  rounds: number,
  time: number,
  server: PostgresServer,
): Promise<Map<Contender, number[]>> {
  const results = new Map(contenders.map((contender) => [contender, [] as number[]]));
  for (let round = 0; round < rounds; round += 1) {
    for (const contender of contenders) {
      await server.sql('TRUNCATE plants');
      await server.sql('CHECKPOINT');
      const rate = await contender.measure(time);
      const [row] = await server.sql('SELECT count(*) AS kept FROM plants');
      if (!(Number(row?.kept) > 0.4 * rate * time))
        throw new Error(`${contender.name} says ${rate} a second, and there are ${row?.kept} plants`);
      results.get(contender)?.push(rate);
    }
  }
  return results;
}

function renderTable(contenders: readonly Contender[], results: Map<Contender, number[]>): string {
  const medians = contenders.map((contender) => median(results.get(contender) ?? []));
  const [ours = Number.NaN] = medians;
  const lines = contenders.map((contender, index) => {
    const rates = results.get(contender) ?? [];
    const range = `${format(Math.min(...rates))} to ${format(Math.max(...rates))}`;
    const ratio = ours / (medians[index] ?? Number.NaN);
    return `| ${contender.name} | ${format(medians[index] ?? Number.NaN)} | ${range} | ${ratio.toFixed(2)} |`;
  });
  const yardstick = medians.at(-1) ?? Number.NaN;
  const verdict = ours >= TARGET * yardstick ? 'met' : 'missed';
  return [
    '| creates per second | median | lowest to highest | plant-store is so many times that |',
    '|---|---:|---:|---:|',
    ...lines,
    '',
    `The target, ${TARGET} times the last line, is ${verdict}.`,
    '',
  ].join('\n');
}

function median(values: readonly number[]): number {
  const ordered = values.toSorted((a, b) => a - b);
  const middle = ordered.length / 2;
  return ((ordered[Math.floor(middle)] ?? 0) + (ordered[Math.ceil(middle) - 1] ?? 0)) / 2;
}

function format(value: number): string {
  return Math.round(value).toLocaleString('en');
}
