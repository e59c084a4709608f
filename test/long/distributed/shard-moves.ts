import type { TestContext } from 'node:test';
import { startInstances, stopInOrder } from '../../support/service-instances.ts';
import type { Balance } from '../../support/write-ledger.ts';
import { type CitusNodes, moveShard, shardOf } from './citus-nodes.ts';
import { OwnersLoad } from './owners-load.ts';

const INSTANCES = 2;
const OWNERS_PER_WORKER = 4;

interface Move {
  /** Seconds that the move took. */
  readonly seconds: number;
  /** The longest time without an acknowledged write of an owner of the shard, and of any other owner. */
  readonly silence: { readonly moved: number; readonly other: number };
  readonly unavailable: number;
}

/**
 * Moves shards between workers under the load of two instances, each shard with an owner that writes to it. Then
 * compares the store with the acknowledged writes. Rejects when they differ.
 */
export async function moveShards(
  t: Pick<TestContext, 'after'>,
  nodes: CitusNodes,
  moves: number,
  report: (line: string) => void,
): Promise<{ readonly moves: readonly Move[]; readonly balance: Balance }> {
  const instances = await startInstances(t, nodes.coordinator, INSTANCES);
  const load = await OwnersLoad.start(nodes, instances, OWNERS_PER_WORKER);
  const done: Move[] = [];
  for (let index = 0; index < moves; index += 1) {
    const owner = load.owners[(index * OWNERS_PER_WORKER + index) % load.owners.length];
    if (owner === undefined) throw new Error('there is no owner');
    const shard = await shardOf(nodes, owner.name);
    const to = nodes.workers.find((worker) => worker !== shard.worker);
    if (to === undefined) throw new Error('there is no other worker');
    await load.acknowledged(2);
    load.takeLongestSilences();
    const before = load.balance();
    const started = performance.now();
    await moveShard(nodes, shard, to);
    const seconds = (performance.now() - started) / 1_000;
    await load.acknowledged(1);
    const silences = load.takeLongestSilences();
    const longest = (isMoved: boolean): number =>
      Math.max(
        ...load.owners
          .filter((one) => (one.shard === shard.id) === isMoved)
          .map(({ name }) => silences.get(name) ?? 0),
      );
    const move = {
      seconds,
      silence: { moved: longest(true), other: longest(false) },
      unavailable: load.balance().unavailable - before.unavailable,
    };
    done.push(move);
    report(
      `  move ${index + 1}: ${seconds.toFixed(1)} s; no write for ${move.silence.moved.toFixed(1)} s in the shard, ` +
        `${move.silence.other.toFixed(1)} s elsewhere; ${move.unavailable} responses with 503`,
    );
  }
  const balance = await load.settle();
  await stopInOrder(instances);
  return { moves: done, balance };
}
