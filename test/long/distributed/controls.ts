import type { TestContext } from 'node:test';
import { execute } from '../../support/engines.ts';
import type { PostgresServer } from '../../support/servers/postgres-server.ts';
import { createToken, startInstances } from '../../support/service-instances.ts';
import { Ledger } from '../../support/write-ledger.ts';
import { judgeHistory, type Recording } from '../instances.ts';
import { type CitusNodes, shardOf, transactionsEnded } from './citus-nodes.ts';

const WRITERS = 16;

/** The last commit before a kill is not always in one phase. */
const ATTEMPTS = 5;

/** Changes one plant of a recorded list. Rejects with what the judge finds. */
export async function wrongList(recording: Recording): Promise<void> {
  const operations = [...recording.operations];
  const index = operations.findIndex(({ effect }) => effect.kind === 'listed' && effect.name !== undefined);
  const listed = operations[index];
  if (listed === undefined) throw new Error('no list has a plant');
  operations[index] = { ...listed, effect: { kind: 'listed', name: 'a plant that was never created' } };
  const faults = judgeHistory({ ...recording, operations });
  if (faults.length > 0) throw new Error(faults.join('\n'));
}

/** Deletes an acknowledged plant behind the service. Rejects with what the ledger finds. */
export async function lostPlant(t: Pick<TestContext, 'after'>, url: string): Promise<void> {
  const owner = 'control';
  const ledger = await startLedger(t, url, owner);
  for (let count = 0; count < 50; count += 1) await ledger.nextAcknowledged();
  await ledger.finish();
  // The ledger keeps every odd plant; the first one is acknowledged.
  await execute(url, `DELETE FROM plants WHERE owner = '${owner}' AND id = 1`);
  await ledger.settle();
}

/**
 * Kills a worker that acknowledges commits before they are on its disk, just after the last writes: Citus creates plants
 * in two phases, which are on disk, but deletes those of one owner in one phase. Rejects with what the ledger finds.
 */
export async function carelessWorker(
  t: Pick<TestContext, 'after'>,
  nodes: CitusNodes,
  server: PostgresServer,
): Promise<void> {
  for (const setting of ['synchronous_commit = off', "wal_writer_delay = '10s'"])
    await server.sql(`ALTER SYSTEM SET ${setting}`);
  await server.stop();
  await server.start();
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    let owner = `careless ${attempt}`;
    while (new URL((await shardOf(nodes, owner)).worker).port !== String(server.port)) owner += '.';
    const ledger = await startLedger(t, nodes.coordinator, owner);
    for (let count = 0; count < 50; count += 1) await ledger.nextAcknowledged();
    await ledger.finish();
    await server.kill();
    await server.start();
    await transactionsEnded(nodes);
    await ledger.settle();
  }
}

async function startLedger(t: Pick<TestContext, 'after'>, url: string, owner: string): Promise<Ledger> {
  const instances = await startInstances(t, url, 1);
  const { secret } = await createToken(url, owner);
  return new Ledger({ fronts: instances, token: secret, writers: WRITERS });
}
