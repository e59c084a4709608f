import type { TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { PATIENCE_MS } from '../support/patience.ts';
import { readFlags } from '../support/script-flags.ts';
import { type PostgresServer, startPostgres } from '../support/servers/postgres-server.ts';
import { createToken, startInstances, stopInOrder } from '../support/service-instances.ts';
import { type Balance, Ledger } from '../support/write-ledger.ts';

interface Restarts {
  readonly balance: Balance;
  /** For each round: milliseconds from the readiness of the server until every instance acknowledged a write. */
  readonly recoveries: readonly number[];
}

const INSTANCES = 3;

/** Promised limit for the instances to write again after their server is ready, on an idle machine. */
const RECOVERY_MS = 5_000;

/**
 * Repeatedly crashes and restarts a PostgreSQL under the load of three instances. Then compares the store with the
 * acknowledged writes. Rejects when they differ, when an instance does not recover, or when one exits.
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
    // The exit of an instance is the cause of its unanswered requests; report it first.
    await stopInOrder(instances);
  }
}

/** Resolves to the recovery time in milliseconds. */
async function crash(server: PostgresServer, ledger: Ledger): Promise<number> {
  // A few hundred writes are pending or done, so that the crash hits batches in all stages.
  for (let writes = 0; writes < 200; writes += 1) await ledger.nextAcknowledged();
  await server.stop('immediate');
  await server.start();
  const ready = performance.now();
  const tooLate = setTimeout(PATIENCE_MS, 'too late', { ref: false });
  if ((await Promise.race([ledger.everyFrontAcknowledged(), tooLate])) === 'too late')
    throw new Error(
      `not every instance acknowledged a write within ${PATIENCE_MS} ms after the server was ready`,
    );
  return performance.now() - ready;
}

async function main(): Promise<void> {
  const values = readFlags(
    'Kills PostgreSQL under the load of three instances. Checks that no acknowledged write is lost, and measures the recovery.',
    { rounds: { type: 'string', default: '20', about: 'number of kills' } },
  );
  const releases: (() => unknown)[] = [];
  const server = await startPostgres();
  try {
    const scope = { after: (release: () => unknown) => void releases.unshift(release) };
    const { balance, recoveries } = await crashUnderLoad(scope, server, Number(values.rounds));
    const longest = Math.max(...recoveries);
    const worst = longest.toFixed(0);
    process.stdout.write(`${recoveries.length} crashes survived: ${JSON.stringify(balance)}\n`);
    process.stdout.write(
      `every instance acknowledged a write within ${worst} ms after the server was ready\n`,
    );
    if (longest > RECOVERY_MS) throw new Error(`the limit is ${RECOVERY_MS} ms`);
  } catch (error: unknown) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
    process.exitCode = 1;
  } finally {
    for (const release of releases) await release();
    await server.remove();
  }
}

if (import.meta.main) await main();
