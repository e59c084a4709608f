import type { TestContext } from 'node:test';
import { startInstances, stopInOrder } from '../../support/service-instances.ts';
import type { Balance } from '../../support/write-ledger.ts';
import { addWorker, type CitusNodes, rebalance } from './citus-nodes.ts';
import { OwnersLoad } from './owners-load.ts';

const INSTANCES = 2;
const OWNERS = 8;

interface Growth {
  /** Seconds until the new worker had its share of the shards. */
  readonly seconds: number;
  /** The longest time without an acknowledged write of an owner. */
  readonly silence: number;
  readonly balance: Balance;
}

/**
 * Adds the second worker to a cluster with one, and moves half of the shards to it under the load of two instances.
 * Then compares the store with the acknowledged writes. Rejects when they differ.
 */
export async function growByOneWorker(t: Pick<TestContext, 'after'>, nodes: CitusNodes): Promise<Growth> {
  const [first, second] = nodes.workers;
  if (first === undefined || second === undefined) throw new Error('there are no two workers');
  const instances = await startInstances(t, nodes.coordinator, INSTANCES);
  const load = await OwnersLoad.start({ ...nodes, workers: [first] }, instances, OWNERS);
  await load.acknowledged(2);
  load.takeLongestSilences();
  const started = performance.now();
  await addWorker(nodes, second);
  await rebalance(nodes);
  const seconds = (performance.now() - started) / 1_000;
  await load.acknowledged(1);
  const silence = Math.max(...load.takeLongestSilences().values());
  const balance = await load.settle();
  await stopInOrder(instances);
  return { seconds, silence, balance };
}
