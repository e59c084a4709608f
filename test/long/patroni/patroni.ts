import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { NEEDS } from '../../support/needs.ts';
import { readFlags } from '../../support/script-flags.ts';
import { startPatroniCluster } from '../../support/servers/patroni-cluster.ts';
import { HAS_PGBOUNCER } from '../../support/servers/pgbouncer.ts';
import { createToken, startInstances, stopInOrder } from '../../support/service-instances.ts';
import { type Balance, Ledger } from '../../support/write-ledger.ts';
import { faults } from './faults.ts';
import { changeRoles, troublePooler } from './pooler.ts';
import { Probe } from './probe.ts';

/** Load after each fault, so that late effects count to its round. */
const AFTERWARDS_MS = 3_000;

/** Debian has PostgreSQL's programs here, one folder for each version. */
const DEBIAN_POSTGRES = '/usr/lib/postgresql';

interface Round {
  readonly fault: string;
  /** The longest time in which an instance acknowledged no write. */
  readonly seconds: number;
  /** Writes with a 503: sent once without a key, and retried ones. */
  readonly failed: { readonly once: number; readonly retried: number };
}

interface PatroniRun {
  readonly balance: Balance;
  readonly rounds: readonly Round[];
  readonly lists: Awaited<ReturnType<Probe['end']>>;
  /** Rounds that took longer than their fault may. */
  readonly late: readonly Round[];
}

/**
 * Two instances of the service write to three members under Patroni, which faults strike one after the other. Rejects
 * when an acknowledged write is lost, a deleted plant is back, or a retry with a key gets another response than 200.
 */
async function strike(
  t: Pick<TestContext, 'after'>,
  cluster: Awaited<ReturnType<typeof startPatroniCluster>>,
  wanted: readonly (readonly [keyof typeof faults, number])[],
): Promise<PatroniRun> {
  const instances = await startInstances(t, cluster.url, 2);
  const { secret } = await createToken(cluster.url);
  const { secret: probeToken } = await createToken(cluster.url, 'probe');
  const ledger = new Ledger({ fronts: instances, token: secret, writers: 8 });
  const probe = new Probe(instances, probeToken);
  const rounds: Round[] = [];
  for (const [name, count] of wanted) {
    for (let round = 0; round < count; round += 1) {
      await cluster.healthy();
      await ledger.everyFrontAcknowledged();
      ledger.takeLongestSilence();
      const before = ledger.balance();
      const finish = await faults[name].run(cluster, () => ledger.everyFrontAcknowledged());
      const seconds = ledger.takeLongestSilence() / 1_000;
      await finish();
      await setTimeout(AFTERWARDS_MS);
      await cluster.healthy();
      const { unknown, unavailable } = ledger.balance();
      const once = unknown - before.unknown;
      rounds.push({
        fault: name,
        seconds,
        failed: { once, retried: unavailable - before.unavailable - once },
      });
      process.stdout.write(`${describeRound(rounds.at(-1))}\n`);
    }
  }
  const lists = await probe.end();
  const balance = await ledger.settle();
  await stopInOrder(instances);
  const late = rounds.filter(({ fault, seconds }) =>
    wanted.some(([name]) => name === fault && seconds > faults[name].limit(cluster.ttl)),
  );
  return { balance, rounds, lists, late };
}

function describeRound(round: Round | undefined): string {
  if (round === undefined) return '';
  const { fault, seconds, failed } = round;
  return `${fault}: writes away ${seconds.toFixed(1)} s; 503: ${failed.once} without a key, ${failed.retried} retried`;
}

/** Returns the programs that the machine lacks, and how to get them. */
function missing(postgres: string | undefined): readonly string[] {
  const patroni = spawnSync('patroni', ['--version'], { encoding: 'utf8' });
  const version = Number(/patroni (\d+)/.exec(patroni.stdout ?? '')?.[1]);
  return [
    ...(version >= 4 ? [] : ["patroni 4 on the PATH (pip install 'patroni[etcd3]' 'psycopg[binary]')"]),
    ...(spawnSync('etcd', ['--version']).error === undefined ? [] : ['etcd (apt-get install etcd-server)']),
    ...(postgres !== undefined && existsSync(join(postgres, 'pg_rewind'))
      ? []
      : ["PostgreSQL's programs (apt-get install postgresql, or --postgres-bin)"]),
    ...(HAS_PGBOUNCER ? [] : ['pgbouncer (apt-get install pgbouncer)']),
  ];
}

function newestPostgres(): string | undefined {
  if (!existsSync(DEBIAN_POSTGRES)) return undefined;
  const newest = readdirSync(DEBIAN_POSTGRES)
    .sort((one, other) => Number(one) - Number(other))
    .at(-1);
  return newest === undefined ? undefined : join(DEBIAN_POSTGRES, newest, 'bin');
}

async function main(): Promise<void> {
  const count = (fallback: number, about: string) =>
    ({ type: 'string', default: String(fallback), about }) as const;
  const values = readFlags(
    'Runs the service on three PostgreSQL servers under Patroni, and behind PgBouncer, strikes them with faults, and checks that no acknowledged write is lost.',
    {
      switchovers: count(10, 'planned switchovers'),
      kills: count(10, 'kill -9 of the primary with its Patroni'),
      freezes: count(5, 'primaries that stand still for longer than ttl'),
      partitions: count(2, 'primaries that lose etcd'),
      'etcd-freezes': count(1, 'times that etcd stands still'),
      'role-changes': count(10, 'switchovers behind PgBouncer'),
      'postgres-bin': {
        type: 'string',
        takes: 'FOLDER',
        about: `folder of PostgreSQL's programs; the newest of ${DEBIAN_POSTGRES} by default`,
      },
    },
  );
  const postgres = values['postgres-bin'] ?? newestPostgres();
  const lacks = missing(postgres);
  if (lacks.length > 0 || postgres === undefined) {
    process.stdout.write(`not run: ${NEEDS}${lacks.join(', ')}\n`);
    process.exitCode = 1;
    return;
  }
  const releases: (() => unknown)[] = [];
  const scope = { after: (release: () => unknown) => void releases.unshift(release) };
  try {
    const cluster = await startPatroniCluster(scope, postgres);
    const { balance, lists, late } = await strike(scope, cluster, [
      ['switchover', Number(values.switchovers)],
      ['kill', Number(values.kills)],
      ['freeze', Number(values.freezes)],
      ['partition', Number(values.partitions)],
      ['etcd', Number(values['etcd-freezes'])],
    ]);
    process.stdout.write(`0 writes lost, 0 back from the dead: ${JSON.stringify(balance)}\n`);
    process.stdout.write(
      `${lists.lists} lists, ${lists.unavailable} with 503, ${lists.stale.length} stale\n`,
    );
    const pooled = await troublePooler(scope, cluster);
    const away = Object.entries(pooled.away).map(
      ([accident, seconds]) => `${accident} ${seconds.toFixed(1)} s`,
    );
    process.stdout.write(
      `PgBouncer: writes away: ${away.join(', ')}; 0 lost: ${JSON.stringify(pooled.balance)}\n`,
    );
    const roles = await changeRoles(scope, cluster, Number(values['role-changes']));
    process.stdout.write(
      `PgBouncer on a standby: ${roles.lists} lists, ${roles.wrong.length} not rejected\n`,
    );
    const failures = [...lists.stale, ...late.map(describeRound), ...roles.wrong];
    if (failures.length > 0) throw new Error(failures.join('\n'));
  } catch (error: unknown) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
    process.exitCode = 1;
  } finally {
    for (const release of releases) await release();
  }
}

if (import.meta.main) await main();
