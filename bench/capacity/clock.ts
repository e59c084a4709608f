/**
 * A simulated clock, which runs events in order of time. Events of the same time run in the order of their
 * addition.
 */
export class Clock {
  #now = 0;
  #added = 0;
  /** The pending events, as a binary heap. */
  readonly #events: Event[] = [];

  /** Simulated seconds since the start. */
  get now(): number {
    return this.#now;
  }

  /** Runs `work` after `delay` simulated seconds. */
  after(delay: number, work: () => void): void {
    const event = { time: this.#now + delay, order: this.#added, work };
    this.#added += 1;
    let index = this.#events.length;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const above = this.#events[parent];
      if (above === undefined || isBefore(above, event)) break;
      this.#events[index] = above;
      index = parent;
    }
    this.#events[index] = event;
  }

  /** Runs all events up to the simulated time `end`. */
  runUntil(end: number): void {
    for (let next = this.#events[0]; next !== undefined && next.time <= end; next = this.#events[0]) {
      this.#removeFirst();
      this.#now = next.time;
      next.work();
    }
    this.#now = end;
  }

  #removeFirst(): void {
    const last = this.#events.pop();
    if (last === undefined || this.#events.length === 0) return;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      let below = this.#events[child];
      if (below === undefined) break;
      const right = this.#events[child + 1];
      if (right !== undefined && isBefore(right, below)) {
        below = right;
        child += 1;
      }
      if (isBefore(last, below)) break;
      this.#events[index] = below;
      index = child;
    }
    this.#events[index] = last;
  }
}

interface Event {
  readonly time: number;
  readonly order: number;
  readonly work: () => void;
}

function isBefore(one: Event, other: Event): boolean {
  return one.time < other.time || (one.time === other.time && one.order < other.order);
}
