import { execFile } from 'node:child_process';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { isInstalled } from '../../test/support/needs.ts';
import { type PostgresServer, startPostgres } from '../../test/support/servers/postgres-server.ts';
import { cpuSeconds } from '../../test/support/servers/process-tree.ts';
import { compare } from '../compare.ts';
import type { Contender, Measurement } from '../contenders/contender.ts';
import { httpContender } from '../contenders/http-contender.ts';
import { OWNER, startPlantStore } from '../contenders/plant-store.ts';
import { readEndedCpuSeconds } from '../contenders/process-stats.ts';
import { type LoadResult, runForLoadResult } from '../load/generator.ts';
import { ratioTo } from '../report/figures.ts';
import { createInOrder, NEW_PLANT } from '../workload.ts';
import { type Bench, type Part, type Report, reportOf } from './scenario.ts';

const INSERTS = join(import.meta.dirname, '../load/pg-inserts-process.ts');
const PGBENCH = 'pgbench, one prepared INSERT';

export const postgresPart: Part = {
  name: 'postgres',
  about: 'creates on PostgreSQL, compared with single inserts through pg and by pgbench',
  run: runPostgres,
};

async function runPostgres(bench: Bench): Promise<Report> {
  await using resources = new AsyncDisposableStack();
  const folder = await mkdtemp(join(bench.folder, 'postgres-'));
  const server = await startCheckedPostgres(resources);
  bench.signal.throwIfAborted();
  const running = await startPlantStore({ folder, databaseUrl: server.url() });
  resources.defer(() => running.close());
  const contenders = [
    httpContender({ name: 'plant-store over HTTP', running }, createInOrder, bench),
    singleInserts(server, bench),
    ...(isInstalled('pgbench') ? [await pgbench(server, folder, bench)] : []),
  ];
  const comparison = await compare(
    'create, PostgreSQL',
    contenders.map((contender) => onEmptyTable(server, contender)),
    bench.plan,
  );
  return reportOf([comparison], { createToPgbench: ratioTo(comparison, PGBENCH) });
}

/**
 * Starts PostgreSQL and checks that its commits are durable. The server is stopped and its data removed when
 * `resources` is disposed.
 */
export async function startCheckedPostgres(resources: AsyncDisposableStack): Promise<PostgresServer> {
  const server = await startPostgres();
  resources.defer(() => server.remove());
  const [row] = await server.sql("SELECT current_setting('fsync') AS fsync");
  if (row?.fsync !== 'on') throw new Error('PostgreSQL runs without fsync; the figures would mean nothing');
  return server;
}

function singleInserts(server: PostgresServer, { connections, signal }: Bench): Contender {
  return {
    name: 'pg, one prepared INSERT',
    measure: async (_run, seconds) => {
      const args = [INSERTS, server.url(), String(connections), String(seconds)];
      return clientProgram(() => runForLoadResult([process.execPath, ...args], signal));
    },
  };
}

async function pgbench(
  server: PostgresServer,
  folder: string,
  { connections, signal }: Bench,
): Promise<Contender> {
  const script = join(folder, 'create.sql');
  await writeFile(
    script,
    `\\set n :n + 1
     \\set id :client_id * 1000000000 + :n
     INSERT INTO plants (owner, id, name, tag) VALUES ('${OWNER}', :id, '${NEW_PLANT.name}', '${NEW_PLANT.tag}');`,
  );
  const fixed = ['-n', '-M', 'prepared', '-c', String(connections), '-j', '2', '-D', 'n=0', '-f', script];
  return {
    name: PGBENCH,
    measure: (_run, seconds) =>
      clientProgram(() => runPgbench([...fixed, '-T', String(seconds), server.url()], signal)),
  };
}

async function runPgbench(args: readonly string[], signal: AbortSignal): Promise<LoadResult> {
  const { stdout } = await promisify(execFile)('pgbench', args, { signal });
  if (!/failed transactions: 0 /.test(stdout)) throw new Error(`pgbench: ${stdout}`);
  // pgbench prints the number of transactions and their rate. The rate leaves out the time to connect, so the
  // number divided by the rate gives the duration.
  const answers = Number(/actually processed: (\d+)/.exec(stdout)?.[1]);
  const took = answers / Number(/tps = ([0-9.]+)/.exec(stdout)?.[1]);
  return { answers, seconds: took, p50Ms: undefined, p99Ms: undefined, failures: 0 };
}

/**
 * Starts each run with an empty table and a completed checkpoint. After a run, throws if the table has less
 * than 90 % of the plants that the run reported as created. The CPU time of PostgreSQL is added to that of
 * the service.
 */
function onEmptyTable(server: PostgresServer, { name, measure }: Contender): Contender {
  return {
    name,
    measure: async (run, seconds) => {
      await server.sql('TRUNCATE plants');
      await server.sql('CHECKPOINT');
      const before = await cpuSeconds(server.pid);
      const measurement = await measure(run, seconds);
      const after = await cpuSeconds(server.pid);
      const [row] = await server.sql('SELECT count(*) AS kept FROM plants');
      if (!(Number(row?.kept) >= 0.9 * measurement.answers))
        throw new Error(`${name} reports ${measurement.answers} plants; the table has ${row?.kept}`);
      const { cpu } = measurement;
      if (cpu === undefined || before === undefined || after === undefined) return measurement;
      return { ...measurement, cpu: { ...cpu, server: cpu.server + after - before, others: undefined } };
    },
  };
}

/**
 * Measures a program that uses PostgreSQL directly. The program is both the measured subject and the load
 * generator, so it is never reported as the bottleneck.
 */
async function clientProgram(run: () => Promise<LoadResult>): Promise<Measurement> {
  const before = readEndedCpuSeconds();
  const result = await run();
  const after = readEndedCpuSeconds();
  const cpu = before !== undefined &&
    after !== undefined && {
      ...{ server: 0, serverMainThread: 0, others: undefined },
      generator: after - before,
      generatorThreads: Number.POSITIVE_INFINITY,
    };
  return { ...result, cpu: cpu || undefined, peakBytes: undefined, usage: undefined };
}
