import { randomUUID } from 'node:crypto';
import { createToken, type Instance } from '../../support/service-instances.ts';
import { type Balance, Ledger } from '../../support/write-ledger.ts';
import { type CitusNodes, shardOf } from './citus-nodes.ts';

const WRITERS_PER_OWNER = 2;

interface Owner {
  readonly name: string;
  /** Its shard of plants. */
  readonly shard: string;
  /** The URL of the worker that has its plants. */
  readonly worker: string;
}

/** A load of several owners, of which each worker has equally many, with a record of what was acknowledged to each. */
export class OwnersLoad {
  readonly owners: readonly Owner[];
  readonly #ledgers: ReadonlyMap<string, Ledger>;

  private constructor(owners: readonly Owner[], ledgers: ReadonlyMap<string, Ledger>) {
    this.owners = owners;
    this.#ledgers = ledgers;
  }

  /** Starts the load on the workers that have shards. */
  static async start(
    nodes: CitusNodes,
    instances: readonly Instance[],
    ownersPerWorker: number,
  ): Promise<OwnersLoad> {
    const owners = await findOwners(nodes, ownersPerWorker);
    const ledgers = new Map<string, Ledger>();
    for (const { name } of owners) {
      const { secret } = await createToken(nodes.coordinator, name);
      ledgers.set(name, new Ledger({ fronts: instances, token: secret, writers: WRITERS_PER_OWNER }));
    }
    return new OwnersLoad(owners, ledgers);
  }

  /** Resolves when each instance has acknowledged this number of writes of each owner. */
  async acknowledged(times: number): Promise<void> {
    await Promise.all(
      [...this.#ledgers.values()].map(async (ledger) => {
        for (let time = 0; time < times; time += 1) await ledger.everyFrontAcknowledged();
      }),
    );
  }

  /** Returns the longest time in seconds, since the last call, in which an instance acknowledged no write of an owner. */
  takeLongestSilences(): ReadonlyMap<string, number> {
    return new Map([...this.#ledgers].map(([owner, ledger]) => [owner, ledger.takeLongestSilence() / 1_000]));
  }

  balance(): Balance {
    return sumOf([...this.#ledgers.values()].map((ledger) => ledger.balance()));
  }

  /** Stops the load. */
  async finish(): Promise<void> {
    await Promise.all([...this.#ledgers.values()].map((ledger) => ledger.finish()));
  }

  /** Compares the store with the records of each owner. Rejects when they differ. */
  async settle(): Promise<Balance> {
    return sumOf(await Promise.all([...this.#ledgers.values()].map((ledger) => ledger.settle())));
  }
}

/** Makes up owners, equally many on each worker. */
export async function findOwners(nodes: CitusNodes, perWorker: number): Promise<readonly Owner[]> {
  const found = new Map<string, Owner[]>(nodes.workers.map((worker) => [worker, []]));
  const run = randomUUID();
  for (let serial = 1; [...found.values()].some(({ length }) => length < perWorker); serial += 1) {
    const name = `${run}.${serial}`;
    const { id, worker } = await shardOf(nodes, name);
    const owners = found.get(worker);
    if (owners !== undefined && owners.length < perWorker) owners.push({ name, shard: id, worker });
  }
  return [...found.values()].flat();
}

function sumOf(balances: readonly Balance[]): Balance {
  const sum = (of: (balance: Balance) => number): number =>
    balances.reduce((total, balance) => total + of(balance), 0);
  return {
    created: sum(({ created }) => created),
    deleted: sum(({ deleted }) => deleted),
    unknown: sum(({ unknown }) => unknown),
    replayed: sum(({ replayed }) => replayed),
    unavailable: sum(({ unavailable }) => unavailable),
  };
}
