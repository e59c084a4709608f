import type { TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { readFlags } from '../support/script-flags.ts';
import { type PostgresServer, startPostgres } from '../support/servers/postgres-server.ts';
import { createToken, startInstances, stopInOrder } from '../support/service-instances.ts';
import { type Balance, Ledger } from '../support/write-ledger.ts';

interface Restarts {
  readonly balance: Balance;
  /** For each round, the milliseconds from the server's readiness until every instance had acknowledged a write. */
  readonly recoveries: readonly number[];
}

const INSTANCES = 3;

/** How long the instances may take to write again once their server is ready. */
const RECOVERY_MS = 5_000;

/**
 * Crashes a PostgreSQL under the load of three instances of the service, starts it again, and so on; then compares what
 * is stored with what was acknowledged. Rejects when they differ, when the instances take too long to come back, and
 * when one of them ends.
 */
export async function crashUnderLoad(
  t: Pick<TestContext, 'after'>,
  server: PostgresServer,
  rounds: number,
): Promise<Restarts> {
  const instances = await startInstances(t, server.url(), INSTANCES);
  const { secret } = await createToken(server.url());
  const ledger = new Ledger({ fronts: instances, token: secret, writers: 16 });
  const recoveries: number[] = [];
  try {
    for (let round = 0; round < rounds; round += 1) recoveries.push(await crash(server, ledger));
    return { balance: await ledger.settle(), recoveries };
  } finally {
    // An instance that ended says more than the requests that it left without an answer.
    await stopInOrder(instances);
  }
}

/** Resolves to the milliseconds of the recovery. */
async function crash(server: PostgresServer, ledger: Ledger): Promise<number> {
  // A few hundred writes are under way or done, so that the crash meets batches in all stages.
  for (let writes = 0; writes < 200; writes += 1) await ledger.nextAcknowledged();
  await server.stop('immediate');
  await server.start();
  const ready = performance.now();
  const tooLate = setTimeout(RECOVERY_MS, 'too late', { ref: false });
  if ((await Promise.race([ledger.everyFrontAcknowledged(), tooLate])) === 'too late')
    throw new Error(
      `not every instance acknowledged a write within ${RECOVERY_MS} ms after the server was ready`,
    );
  return performance.now() - ready;
}

async function main(): Promise<void> {
  const values = readFlags(
    'Kills PostgreSQL under the load of three instances, and tells whether an acknowledged write is lost, and how soon they write again.',
    { rounds: { type: 'string', default: '20', about: 'how often it is killed' } },
  );
  const releases: (() => unknown)[] = [];
  const server = await startPostgres();
  try {
    const scope = { after: (release: () => unknown) => void releases.unshift(release) };
    const { balance, recoveries } = await crashUnderLoad(scope, server, Number(values.rounds));
    const worst = Math.max(...recoveries).toFixed(0);
    process.stdout.write(`${recoveries.length} crashes survived: ${JSON.stringify(balance)}\n`);
    process.stdout.write(
      `every instance acknowledged a write at most ${worst} ms after the server was ready\n`,
    );
  } catch (error: unknown) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
    process.exitCode = 1;
  } finally {
    for (const release of releases) await release();
    await server.remove();
  }
}

if (import.meta.main) await main();
