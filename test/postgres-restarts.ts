import type { TestContext } from 'node:test';
import { readFlags } from './flags.ts';
import { type Balance, Ledger } from './ledger.ts';
import { type PostgresServer, startPostgres } from './postgres-server.ts';
import { startService } from './service.ts';

interface Restarts {
  readonly balance: Balance;
  /** For each round, the milliseconds from the server's readiness to the first acknowledged write. */
  readonly recoveries: readonly number[];
}

/**
 * Crashes a PostgreSQL under the load of a service in this process, starts it again, and so on; then compares what is
 * stored with what was acknowledged. Rejects when they differ.
 */
export async function crashUnderLoad(
  t: Pick<TestContext, 'after'>,
  server: PostgresServer,
  databaseUrl: string,
  rounds: number,
): Promise<Restarts> {
  const service = await startService(t, databaseUrl);
  const ledger = new Ledger({ fronts: [service], token: await service.token(), writers: 16 });
  const recoveries: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    // A few hundred writes are under way or done, so that the crash meets batches in all stages.
    for (let writes = 0; writes < 20; writes += 1) await ledger.nextAcknowledged();
    await server.stop('immediate');
    await server.start();
    const ready = performance.now();
    await ledger.nextAcknowledged();
    recoveries.push(performance.now() - ready);
  }
  const balance = await ledger.settle();
  await service.close();
  return { balance, recoveries };
}

async function main(): Promise<void> {
  const values = readFlags('Kills PostgreSQL under load, and tells whether an acknowledged write is lost.', {
    rounds: { type: 'string', default: '20', about: 'how often it is killed' },
  });
  const releases: (() => unknown)[] = [];
  const server = await startPostgres();
  try {
    const scope = { after: (release: () => unknown) => void releases.unshift(release) };
    const { balance, recoveries } = await crashUnderLoad(scope, server, server.url(), Number(values.rounds));
    const worst = Math.max(...recoveries).toFixed(0);
    process.stdout.write(`${recoveries.length} crashes survived: ${JSON.stringify(balance)}\n`);
    process.stdout.write(`first write acknowledged at most ${worst} ms after the server was ready\n`);
  } finally {
    for (const release of releases) await release();
    await server.remove();
  }
}

if (import.meta.main) await main();
