import { setTimeout } from 'node:timers/promises';
import type { startPatroniCluster } from '../../support/servers/patroni-cluster.ts';

type Cluster = Awaited<ReturnType<typeof startPatroniCluster>>;

/** Seconds that a fault lasts beyond the time after which Patroni replaces a primary. */
const LONGER = 10;

/** A fault of the cluster: causes it, resolves when writes may return, and to the end of what is still wrong. */
type Fault = (cluster: Cluster, writing: () => Promise<void>) => Promise<() => Promise<void> | void>;

/** The faults, with the seconds after which every instance must write again. `ttl` is that of Patroni. */
export const faults = {
  switchover: { limit: () => 3, run: switchOver },
  kill: { limit: (ttl: number) => ttl + 3, run: kill },
  freeze: { limit: (ttl: number) => ttl + 3, run: freeze },
  partition: { limit: (ttl: number) => ttl + 3, run: partition },
  // Without etcd there is no primary, for as long as it takes.
  etcd: { limit: () => Number.POSITIVE_INFINITY, run: freezeEtcd },
} as const satisfies Record<string, { limit: (ttl: number) => number; run: Fault }>;

async function primaryOf(cluster: Cluster) {
  const primary = await cluster.leader();
  if (primary === undefined) throw new Error('there is no primary');
  return primary;
}

async function switchOver(cluster: Cluster, writing: () => Promise<void>) {
  const former = await primaryOf(cluster);
  await cluster.switchOver();
  await cluster.leaderAfter(former);
  await writing();
  return () => undefined;
}

/** Kills the primary with its Patroni. Both return after another one writes. */
async function kill(cluster: Cluster, writing: () => Promise<void>) {
  const primary = await primaryOf(cluster);
  await primary.kill();
  await cluster.leaderAfter(primary);
  await writing();
  return () => primary.start();
}

/** Stops every process of the primary for longer than ttl, as if its machine stood still. */
async function freeze(cluster: Cluster, writing: () => Promise<void>) {
  const primary = await primaryOf(cluster);
  const resume = await primary.freeze();
  const frozen = setTimeout((cluster.ttl + LONGER) * 1_000);
  await cluster.leaderAfter(primary);
  await writing();
  return async () => {
    await frozen;
    resume();
  };
}

/** Cuts the primary off etcd. Its clients still reach it. */
async function partition(cluster: Cluster, writing: () => Promise<void>) {
  const primary = await primaryOf(cluster);
  primary.etcd.stall();
  const lasted = setTimeout((cluster.ttl + LONGER) * 1_000);
  await cluster.leaderAfter(primary);
  await writing();
  return async () => {
    await lasted;
    primary.etcd.recover();
  };
}

async function freezeEtcd(cluster: Cluster, writing: () => Promise<void>) {
  const resume = cluster.freezeEtcd();
  await setTimeout((cluster.ttl + LONGER) * 1_000);
  resume();
  await writing();
  return () => undefined;
}
