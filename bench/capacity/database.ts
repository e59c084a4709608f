import type { Clock } from './clock.ts';
import { type Costs, MICROSECOND, MILLISECOND } from './model.ts';
import { CommitLog, type Machine } from './resources.ts';

/** Called when a statement or batch has ended. */
export type Done = (succeeded: boolean) => void;

/** A simulated database server, or on SQLite the simulated database file. */
class DatabaseNode {
  up = true;
  readonly machine: Machine;
  readonly log: CommitLog;

  constructor(clock: Clock, machine: Machine, syncMs: number) {
    this.machine = machine;
    this.log = new CommitLog(clock, syncMs * MILLISECOND);
  }
}

interface DatabaseOptions {
  readonly networkMs: number;
  /** Milliseconds after which a statement fails if its node is down. */
  readonly timeoutMs: number;
  readonly failoverSeconds: number;
}

/**
 * Simulated database nodes that share the owners. Owner 0 is on node 0, owner 1 on node 1, and so on in
 * rotation.
 */
export class Database {
  readonly nodes: readonly DatabaseNode[];
  readonly #clock: Clock;
  readonly #costs: Costs;
  readonly #options: DatabaseOptions;
  /** For each node, the index of the node that serves its owners; differs after a failover. */
  readonly #places: number[];

  constructor(clock: Clock, machines: readonly Machine[], costs: Costs, options: DatabaseOptions) {
    this.nodes = machines.map((machine) => new DatabaseNode(clock, machine, costs.syncMs));
    this.#clock = clock;
    this.#costs = costs;
    this.#options = options;
    this.#places = machines.map((_, index) => index);
  }

  list(owner: number, done: Done): void {
    const { listUs } = this.#costs.database;
    this.#reach(this.#nodeOf(owner), done, (node, end) =>
      node.machine.run(
        () => listUs * MICROSECOND,
        () => end(node.up),
      ),
    );
  }

  /** Commits a batch. Each node commits the writes of its owners, and all nodes work at the same time. */
  commit(owners: readonly number[], done: Done): void {
    const { batchUs, createUs } = this.#costs.database;
    const parts = Map.groupBy(owners, (owner) => this.#nodeOf(owner));
    let pending = parts.size;
    let succeeded = true;
    for (const [node, { length }] of parts) {
      const part: Done = (ofPart) => {
        succeeded &&= ofPart;
        pending -= 1;
        if (pending === 0) done(succeeded);
      };
      this.#reach(node, part, (up, end) =>
        up.machine.run(
          () => (batchUs + length * createUs) * MICROSECOND,
          () => up.log.commit(() => end(up.up)),
        ),
      );
    }
  }

  /**
   * Takes a node down for `seconds`. After the failover time, the next node serves the failed node's owners
   * until the failed node is up.
   */
  fail(index: number, seconds: number): void {
    const node = this.nodes[index];
    if (node === undefined) return;
    node.up = false;
    this.#clock.after(this.#options.failoverSeconds, () => {
      if (!node.up) this.#places[index] = (index + 1) % this.nodes.length;
    });
    this.#clock.after(seconds, () => {
      node.up = true;
      this.#places[index] = index;
    });
  }

  #nodeOf(owner: number): DatabaseNode {
    const node = this.nodes[this.#places[owner % this.nodes.length] ?? 0];
    if (node === undefined) throw new Error('a database has at least one node');
    return node;
  }

  #reach(node: DatabaseNode, done: Done, work: (node: DatabaseNode, done: Done) => void): void {
    const { networkMs, timeoutMs } = this.#options;
    if (!node.up) this.#clock.after(timeoutMs * MILLISECOND, () => done(false));
    else if (networkMs === 0) work(node, done);
    else work(node, (succeeded) => this.#clock.after(networkMs * MILLISECOND, () => done(succeeded)));
  }
}
