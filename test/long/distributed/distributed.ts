import { randomBytes } from 'node:crypto';
import type { TestContext } from 'node:test';
import { execute } from '../../support/engines.ts';
import { NEEDS } from '../../support/needs.ts';
import { readFlags } from '../../support/script-flags.ts';
import { findCitus, startCitusCluster } from '../../support/servers/citus-cluster.ts';
import type { PostgresServer, Programs } from '../../support/servers/postgres-server.ts';
import type { Balance } from '../../support/write-ledger.ts';
import { judgeHistory, type Recording, recordHistory } from '../instances.ts';
import {
  type CitusNodes,
  createCitusDatabase,
  databaseAt,
  disconnect,
  distributeOnCreation,
  distributeTables,
  readNodes,
} from './citus-nodes.ts';
import { carelessWorker, lostPlant, wrongList } from './controls.ts';
import {
  type DatabaseKind,
  databaseKinds,
  describeServer,
  detectKind,
  isDatabaseKind,
} from './database-kind.ts';
import { growByOneWorker } from './growth.ts';
import { moveShards } from './shard-moves.ts';
import { runSuite } from './suite.ts';
import { describeThroughput, measureThroughput } from './throughput.ts';
import { Verdicts } from './verdicts.ts';
import { killWorkers } from './worker-kills.ts';

type Scope = Pick<TestContext, 'after'>;

/** The database under test. */
interface Target {
  readonly kind: DatabaseKind;
  /** A database of it to connect to. On Citus that of the coordinator. */
  readonly url: string;
  /** Only on Citus. */
  readonly nodes?: CitusNodes;
  /** The workers, if the program may kill them. */
  readonly servers: readonly PostgresServer[];
  /** The processes of its servers, if they run on this machine. */
  readonly processes: Readonly<Record<string, number>>;
}

interface Options {
  readonly seconds: number;
  readonly kills: number;
  readonly moves: number;
  readonly print: (line: string) => void;
}

const HOW_TO_GET_CITUS =
  'citus (a PostgreSQL with the extension: packages of the Citus project; name its pg_config with --pg-config) or --database-url';

/** Runs every check that applies to a database. */
export async function checkDatabase(
  t: Scope,
  verdicts: Verdicts,
  target: Target,
  { seconds, kills, moves, print }: Options,
): Promise<void> {
  const { url, nodes } = await createStore(t, target);
  print(await describeServer(url, target.kind));
  let recorded: Recording | undefined;
  await verdicts.check('linearizable, 3 instances', async () => {
    const figures: string[] = [];
    for (const owners of [1, 8]) {
      const recording = await recordHistory(t, {
        url,
        instances: 3,
        clients: 32,
        owners,
        hotPlants: 8,
        seconds,
      });
      const faults = judgeHistory(recording);
      if (faults.length > 0) throw new Error(faults.slice(0, 3).join('\n'));
      figures.push(
        `${recording.operations.length} observations by clients of ${owners} owner${owners === 1 ? '' : 's'}`,
      );
      recorded = recording;
    }
    return figures.join(', ');
  });
  await verdicts.control(
    'control: a list with a wrong plant',
    /no order explains what happened to plant \S+/,
    async () => {
      if (recorded !== undefined) await wrongList(recorded);
    },
  );
  await verdicts.control(
    'control: an acknowledged plant is deleted behind the service',
    /acknowledged creations are lost/,
    () => lostPlant(t, url),
  );
  if (nodes === undefined) {
    await measure('throughput', url);
    for (const name of ['throughput with 1 and 2 workers', 'shards moved', 'workers killed'])
      verdicts.notRun(name, 'citus');
    return;
  }
  const plain = await createDatabase(t, target);
  await measure('throughput without workers', plain, ['coordinator']);
  const growing = await createCitusDatabase(t, target.nodes ?? nodes, 1);
  await distributeTables(growing);
  await measure('throughput with 1 worker', growing.coordinator);
  await verdicts.check('second worker added', async () => {
    const growth = await growByOneWorker(t, growing);
    return (
      `${growth.seconds.toFixed(1)} s; no write of an owner for up to ${growth.silence.toFixed(1)} s; ` +
      describeBalance(growth.balance)
    );
  });
  await measure('throughput with 2 workers', growing.coordinator);
  await verdicts.check('shards moved', async () => {
    const { balance } = await moveShards(t, nodes, moves, print);
    return `${moves} moves; ${describeBalance(balance)}`;
  });
  if (target.servers.length === 0) {
    verdicts.notRun('workers killed', 'a cluster that the program starts: no --database-url');
    return;
  }
  await verdicts.check('workers killed', async () => {
    const { balance, lists } = await killWorkers(t, nodes, target.servers, kills, print);
    const stale = lists.flatMap((one) => one.stale);
    if (stale.length > 0) throw new Error(stale.slice(0, 3).join('\n'));
    const read = lists.reduce((sum, one) => sum + one.lists - one.unavailable, 0);
    return `${kills} kills; ${describeBalance(balance)}; ${read} lists, none stale`;
  });
  const [careless] = target.servers;
  if (careless !== undefined)
    await verdicts.control(
      'control: a worker with synchronous_commit = off is killed',
      /acknowledged deletions are lost/,
      () => carelessWorker(t, nodes, careless),
    );

  async function measure(
    name: string,
    store: string,
    servers = Object.keys(target.processes),
  ): Promise<void> {
    await verdicts.check(name, async () => {
      const processes = Object.fromEntries(servers.map((server) => [server, target.processes[server] ?? 0]));
      const throughput = await measureThroughput(t, store, seconds, processes);
      if (throughput.failures.length > 0) throw new Error(throughput.failures.slice(0, 3).join('\n'));
      return describeThroughput(throughput);
    });
  }
}

/** Runs the tests that run on every engine on a database. */
async function checkSuite(t: Scope, verdicts: Verdicts, { kind, url, nodes }: Target): Promise<void> {
  await verdicts.check('tests of the store, the API and the commands', async () => {
    const result =
      nodes === undefined ? await runSuite({ url, kind }) : await runSuite(await citusSuite(t, kind, nodes));
    if (result.failed.length > 0)
      throw new Error(
        `${result.failed.length} failed, ${result.passed} passed\n  ${result.failed.join('\n  ')}`,
      );
    return `${result.passed} passed of ${result.files} files, ${result.skipped} not run`;
  });
}

/** Each test gets a copy of a database that distributes the tables as soon as they are created. */
async function citusSuite(t: Scope, kind: DatabaseKind, nodes: CitusNodes) {
  const template = await createCitusDatabase(t, nodes);
  await distributeOnCreation(template);
  const name = new URL(template.coordinator).pathname.slice(1);
  await disconnect(nodes, name);
  return { kind, url: nodes.coordinator, workers: nodes.workers, template: name };
}

/** Creates an empty store; on Citus with distributed tables. */
async function createStore(t: Scope, target: Target): Promise<{ url: string; nodes?: CitusNodes }> {
  if (target.nodes === undefined) return { url: await createDatabase(t, target) };
  const nodes = await createCitusDatabase(t, target.nodes);
  await distributeTables(nodes);
  return { url: nodes.coordinator, nodes };
}

async function createDatabase(t: Scope, { url, kind }: Target): Promise<string> {
  const name = `plant_store_${randomBytes(6).toString('hex')}`;
  const { creation, removal } = databaseKinds[kind];
  await execute(url, `CREATE DATABASE ${name} ${creation}`);
  t.after(() => execute(url, `DROP DATABASE ${name} ${removal}`));
  return databaseAt(url, name);
}

function describeBalance({ created, deleted, unknown, replayed }: Balance): string {
  return `${created} creations and ${deleted} deletions acknowledged, 0 lost; ${replayed} replayed, ${unknown} unknown`;
}

async function startTarget(t: Scope, programs: Programs, settings: readonly string[]): Promise<Target> {
  const { coordinator, workers } = await startCitusCluster(t, programs, settings);
  return {
    kind: 'citus',
    url: coordinator.url(),
    nodes: { coordinator: coordinator.url(), workers: workers.map((worker) => worker.url()) },
    servers: workers,
    processes: {
      coordinator: coordinator.pid,
      ...Object.fromEntries(workers.map(({ pid }, index) => [`worker ${index + 1}`, pid])),
    },
  };
}

async function givenTarget(url: string, kind: DatabaseKind): Promise<Target> {
  const nodes = kind === 'citus' ? { nodes: await readNodes(url) } : {};
  return { kind, url, ...nodes, servers: [], processes: {} };
}

/** Calls `work` with a scope whose resources are released afterwards. */
async function inScope(work: (t: Scope) => Promise<void>): Promise<void> {
  await using resources = new AsyncDisposableStack();
  await work({ after: (release: () => unknown) => void resources.defer(async () => void (await release())) });
}

async function main(): Promise<void> {
  const values = readFlags(
    'Runs the tests and several instances on a distributed database: a new Citus with a coordinator and two workers, or the database of --database-url.',
    {
      'database-url': {
        type: 'string',
        takes: 'URL',
        about: 'an administrator of the database; of Citus: of the coordinator',
      },
      kind: {
        type: 'string',
        takes: 'citus|cockroachdb|yugabytedb|postgresql',
        about: 'what the URL leads to; detected by default',
      },
      'pg-config': {
        type: 'string',
        default: 'pg_config',
        takes: 'FILE',
        about: 'pg_config of a PostgreSQL with Citus, for the new one',
      },
      only: {
        type: 'string',
        default: 'all',
        takes: 'all|tests|load',
        about: 'the tests, or all other checks',
      },
      seconds: { type: 'string', default: '20', about: 'how long each history and each measurement takes' },
      kills: { type: 'string', default: '5', about: 'kills of a worker' },
      moves: { type: 'string', default: '4', about: 'shards moved one by one' },
    },
  );
  const print = (line: string): void => void process.stdout.write(`${line}\n`);
  const verdicts = new Verdicts(print);
  const options = {
    seconds: Number(values.seconds),
    kills: Number(values.kills),
    moves: Number(values.moves),
    print,
  };
  const url = values['database-url'];
  const programs = findCitus(values['pg-config']);
  if (url === undefined && programs === undefined) {
    print(`not run: ${NEEDS}${HOW_TO_GET_CITUS}`);
    process.exitCode = 1;
    return;
  }
  const kind = isDatabaseKind(values.kind)
    ? values.kind
    : url === undefined
      ? 'citus'
      : await detectKind(url);
  const targetOf = (t: Scope, settings: readonly string[]): Promise<Target> =>
    url === undefined && programs !== undefined
      ? startTarget(t, programs, settings)
      : givenTarget(url ?? '', kind);
  if (values.only !== 'load')
    await inScope(async (t) =>
      checkSuite(
        t,
        verdicts,
        await targetOf(t, [
          'fsync = off',
          'full_page_writes = off',
          'citus.shard_count = 4',
          'citus.max_adaptive_executor_pool_size = 1',
        ]),
      ),
    );
  if (values.only !== 'tests')
    await inScope(async (t) => checkDatabase(t, verdicts, await targetOf(t, []), options));
  if (verdicts.faults > 0) process.exitCode = 1;
}

if (import.meta.main) await main();
