import type { Clock } from './clock.ts';

/** CPU time of one step, in seconds; computed when the step begins. */
type Cost = () => number;

/** A resource that reports how long its units were busy. */
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

  /** Unit-seconds in use so far. */
  read(): number {
    return this.#unitSeconds + this.#inUse * (this.#clock.now - this.#since);
  }
}

/** Cores that threads share. Ready threads get a core in turns, for one step each. */
export class Machine {
  readonly busy: Busy;
  /** Threads of the service that run or wait for a core. */
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

/** A thread of a process: executes steps one after the other, and competes for the cores of its machine. */
export class Thread {
  readonly busy: Busy;
  readonly #machine: Machine;
  /** 1 if it crowds the machine. */
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

  /** Drops all queued steps, as the end of a process does. */
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

/** A number of slots, such as the connections of a pool. */
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

/** A log on a disk: commits that wait while it syncs share the next sync. */
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

/** First in, first out. Array.shift takes long for long arrays. */
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
