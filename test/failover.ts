import type { TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { createToken, startInstances } from './instances.ts';
import { type Balance, Ledger } from './ledger.ts';
import { createStandby, type PostgresServer, startPostgres } from './postgres-server.ts';

export interface Failover {
  readonly balance: Balance;
  /** Milliseconds from the death of the primary to the first acknowledged write. */
  readonly outage: number;
  /** The part of them after the standby was promoted. */
  readonly recovery: number;
}

export interface FailoverOptions {
  /** Acknowledgements to wait for before and after; each stands for some writes. */
  readonly acknowledgements: number;
  /** Lines of postgresql.conf, for both servers. */
  readonly settings: readonly string[];
}

/**
 * Two instances of the service follow a primary with a synchronous standby by one URL, the primary is killed under
 * load, the standby promoted; then what is stored is compared with what was acknowledged. Rejects when they differ.
 */
export async function failOver(
  t: Pick<TestContext, 'after'>,
  { acknowledgements, settings }: FailoverOptions,
): Promise<Failover> {
  const { primary, standby } = await startPair(t, settings);
  const url = `postgres://postgres@127.0.0.1:${primary.port},127.0.0.1:${standby.port}/postgres`;
  const instances = await startInstances(t, url, 2);
  const { secret } = await createToken(url);
  const ledger = new Ledger({ fronts: instances, token: secret, writers: 16 });
  await pass(ledger, acknowledgements);

  const killed = performance.now();
  await primary.stop('immediate');
  await standby.sql('SELECT pg_promote()');
  const promoted = performance.now();
  await ledger.nextAcknowledged();
  const back = performance.now();

  await pass(ledger, acknowledgements);
  const balance = await ledger.settle();
  const accidents = instances.reduce((sum, instance) => sum + instance.accidents, 0);
  if (accidents > 0) throw new Error(`${accidents} instances ended`);
  return { balance, outage: back - killed, recovery: back - promoted };
}

async function pass(ledger: Ledger, acknowledgements: number): Promise<void> {
  for (let count = 0; count < acknowledgements; count += 1) await ledger.nextAcknowledged();
}

async function startPair(
  t: Pick<TestContext, 'after'>,
  settings: readonly string[],
): Promise<{ primary: PostgresServer; standby: PostgresServer }> {
  const primary = await startPostgres(settings);
  t.after(() => primary.remove());
  await primary.stop();
  const standby = await createStandby(primary, settings);
  t.after(() => standby.remove());
  await primary.start();
  await standby.start();
  await primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
  await primary.sql('SELECT pg_reload_conf()');
  while (!(await isSynchronous(primary))) await setTimeout(20);
  return { primary, standby };
}

async function isSynchronous(primary: PostgresServer): Promise<boolean> {
  const rows = await primary.sql("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'");
  return rows.length > 0;
}

/** `node test/failover.ts --acknowledgements 500` */
async function main(): Promise<void> {
  const { values } = parseArgs({ options: { acknowledgements: { type: 'string', default: '500' } } });
  const releases: (() => unknown)[] = [];
  try {
    const scope = { after: (release: () => unknown) => void releases.unshift(release) };
    const acknowledgements = Number(values.acknowledgements);
    const { balance, outage, recovery } = await failOver(scope, { acknowledgements, settings: [] });
    process.stdout.write(`no acknowledged write is lost: ${JSON.stringify(balance)}\n`);
    process.stdout.write(
      `first write acknowledged ${outage.toFixed(0)} ms after the primary died, ${recovery.toFixed(0)} ms after the promotion\n`,
    );
  } finally {
    for (const release of releases) await release();
  }
}

if (import.meta.main) await main();
