import type { Clock } from './clock.ts';

/** A function that returns the CPU seconds of a step. It is called when the step begins. */
type Cost = () => number;

/** Counts the busy units of a resource, such as cores, and sums the time that they were busy. */
export class Busy {
  readonly #clock: Clock;
  #inUse = 0;
  #unitSeconds = 0;
  #since = 0;
  readonly units: number;

  constructor(clock: Clock, units: number) {
    this.#clock = clock;
    this.units = units;
  }

  get inUse(): number {
    return this.#inUse;
  }

  change(by: 1 | -1): void {
    this.#unitSeconds += this.#inUse * (this.#clock.now - this.#since);
    this.#since = this.#clock.now;
    this.#inUse += by;
  }

  /** Returns the busy seconds so far, summed over the units. */
  read(): number {
    return this.#unitSeconds + this.#inUse * (this.#clock.now - this.#since);
  }
}

/**
 * A simulated machine, whose cores are shared by threads. Waiting threads get a free core in rotation, for
 * one step each.
 */
export class Machine {
  readonly busy: Busy;
  /** Number of service main threads that run or wait for a core. */
  crowd = 0;
  readonly #clock: Clock;
  readonly #ready: Queue<() => void> = new Queue();

  constructor(clock: Clock, cores: number) {
    this.#clock = clock;
    this.busy = new Busy(clock, cores);
  }

  /** Runs a step as soon as a core is free. */
  run(cost: Cost, done: () => void): void {
    this.#ready.add(() => {
      this.#clock.after(cost(), () => {
        this.busy.change(-1);
        done();
        this.#dispatch();
      });
    });
    this.#dispatch();
  }

  #dispatch(): void {
    while (this.busy.inUse < this.busy.units && this.#ready.length > 0) {
      this.busy.change(1);
      this.#ready.take()?.();
    }
  }
}

/**
 * A simulated thread. It executes its steps in sequence, and competes with other threads for the cores of its
 * machine.
 */
export class Thread {
  readonly busy: Busy;
  readonly #machine: Machine;
  /** 1 if `crowd` of the machine counts this thread; 0 for a load generator. */
  readonly #weight: number;
  readonly #steps: Queue<{ cost: Cost; done: () => void }> = new Queue();
  #ended = false;

  constructor(clock: Clock, machine: Machine, weight: 0 | 1) {
    this.#machine = machine;
    this.#weight = weight;
    this.busy = new Busy(clock, 1);
  }

  execute(cost: Cost, done: () => void): void {
    this.#steps.add({ cost, done });
    if (this.busy.inUse === 0) this.#next();
  }

  /** Ends the thread with its process: drops all queued steps. */
  end(): void {
    this.#ended = true;
    this.#steps.clear();
  }

  #next(): void {
    const step = this.#steps.take();
    if (step === undefined) return;
    this.busy.change(1);
    this.#machine.crowd += this.#weight;
    this.#machine.run(step.cost, () => {
      this.busy.change(-1);
      this.#machine.crowd -= this.#weight;
      if (!this.#ended) step.done();
      if (this.busy.inUse === 0) this.#next();
    });
  }
}

/** A fixed number of slots, such as the connections of a pool. */
export class Slots {
  readonly busy: Busy;
  readonly #waiting: Queue<() => void> = new Queue();

  constructor(clock: Clock, count: number) {
    this.busy = new Busy(clock, count);
  }

  take(work: () => void): void {
    this.#waiting.add(work);
    this.#dispatch();
  }

  release(): void {
    this.busy.change(-1);
    this.#dispatch();
  }

  #dispatch(): void {
    while (this.busy.inUse < this.busy.units && this.#waiting.length > 0) {
      this.busy.change(1);
      this.#waiting.take()?.();
    }
  }
}

/** A commit log on a disk. Commits that arrive during a sync wait, and share the next sync. */
export class CommitLog {
  readonly busy: Busy;
  readonly #clock: Clock;
  readonly #syncSeconds: number;
  #waiting: (() => void)[] = [];

  constructor(clock: Clock, syncSeconds: number) {
    this.#clock = clock;
    this.#syncSeconds = syncSeconds;
    this.busy = new Busy(clock, 1);
  }

  commit(done: () => void): void {
    this.#waiting.push(done);
    if (this.busy.inUse === 0) this.#sync();
  }

  #sync(): void {
    const group = this.#waiting;
    this.#waiting = [];
    this.busy.change(1);
    this.#clock.after(this.#syncSeconds, () => {
      this.busy.change(-1);
      for (const done of group) done();
      if (this.#waiting.length > 0 && this.busy.inUse === 0) this.#sync();
    });
  }
}

/** A first-in, first-out queue. Array.shift is slow for long arrays. */
class Queue<T> {
  #items: T[] = [];
  #first = 0;

  get length(): number {
    return this.#items.length - this.#first;
  }

  add(item: T): void {
    this.#items.push(item);
  }

  take(): T | undefined {
    const item = this.#items[this.#first];
    this.#first += 1;
    if (this.#first >= this.#items.length) this.clear();
    else if (this.#first > 1_024 && this.#first * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#first);
      this.#first = 0;
    }
    return item;
  }

  clear(): void {
    this.#items = [];
    this.#first = 0;
  }
}
