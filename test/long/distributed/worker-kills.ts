import type { TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import type { PostgresServer } from '../../support/servers/postgres-server.ts';
import { createToken, startInstances, stopInOrder } from '../../support/service-instances.ts';
import type { Balance } from '../../support/write-ledger.ts';
import { Probe } from '../patroni/probe.ts';
import { type CitusNodes, transactionsEnded } from './citus-nodes.ts';
import { findOwners, OwnersLoad } from './owners-load.ts';

const INSTANCES = 2;
const OWNERS_PER_WORKER = 4;

/** Milliseconds for which a killed worker is down. */
const DOWN_MS = 3_000;

interface Kill {
  /** Seconds from the kill until the worker accepted connections again. */
  readonly down: number;
  /** The longest time without an acknowledged write of an owner on the killed worker, and of one on the other. */
  readonly seconds: { readonly killed: number; readonly other: number };
  /** Seconds from the start of the worker until every owner wrote again. */
  readonly recovery: number;
  readonly unavailable: number;
}

interface Kills {
  readonly kills: readonly Kill[];
  readonly balance: Balance;
  /** The lists of one owner on each worker. */
  readonly lists: readonly Awaited<ReturnType<Probe['end']>>[];
}

/**
 * Kills workers in turn under the load of two instances, and starts each again. Then compares the store with the
 * acknowledged writes, after Citus has ended the transactions that were lost on the way. Rejects when they differ.
 */
export async function killWorkers(
  t: Pick<TestContext, 'after'>,
  nodes: CitusNodes,
  servers: readonly PostgresServer[],
  rounds: number,
  report: (line: string) => void,
): Promise<Kills> {
  const instances = await startInstances(t, nodes.coordinator, INSTANCES);
  const load = await OwnersLoad.start(nodes, instances, OWNERS_PER_WORKER);
  const probes = await Promise.all(
    (await findOwners(nodes, 1)).map(async ({ name }) => {
      const { secret } = await createToken(nodes.coordinator, name);
      return new Probe(instances, secret);
    }),
  );
  const kills: Kill[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const index = round % servers.length;
    const [server, worker] = [servers[index], nodes.workers[index]];
    if (server === undefined) throw new Error('there is no worker');
    await load.acknowledged(5);
    load.takeLongestSilences();
    const before = load.balance();
    const killed = performance.now();
    await server.kill();
    await setTimeout(DOWN_MS);
    await server.start();
    const started = performance.now();
    await load.acknowledged(1);
    const recovery = (performance.now() - started) / 1_000;
    const down = (started - killed) / 1_000;
    const silences = load.takeLongestSilences();
    const longest = (isKilled: boolean): number =>
      Math.max(
        ...load.owners
          .filter((owner) => (owner.worker === worker) === isKilled)
          .map(({ name }) => silences.get(name) ?? 0),
      );
    const kill = {
      down,
      seconds: { killed: longest(true), other: longest(false) },
      recovery,
      unavailable: load.balance().unavailable - before.unavailable,
    };
    kills.push(kill);
    report(
      `  kill ${round + 1}: worker down for ${down.toFixed(1)} s; no write of an owner on it for ` +
        `${kill.seconds.killed.toFixed(1)} s, on the other for ${kill.seconds.other.toFixed(1)} s; ` +
        `all wrote ${recovery.toFixed(1)} s after its return; ` +
        `${kill.unavailable} responses with 503`,
    );
  }
  const lists = await Promise.all(probes.map((probe) => probe.end()));
  await load.finish();
  await transactionsEnded(nodes);
  const balance = await load.settle();
  await stopInOrder(instances);
  return { kills, balance, lists };
}
