import { WINDOW_MS } from '../../src/http/auth/rate-limit.ts';
import { RETRY_SOON } from '../../src/http/error-response.ts';
import { slotsOfOwner } from '../../src/http/overload/concurrency-limit.ts';
import { MAX_BATCH } from '../../src/store/group-commit.ts';
import type { Clock } from './clock.ts';
import type { Database } from './database.ts';
import {
  type Costs,
  type Kind,
  type Limits,
  MICROSECOND,
  MILLISECOND,
  type Request,
  type Status,
} from './model.ts';
import { type Machine, Slots, Thread } from './resources.ts';

/** Background threads run in steps of this many CPU seconds; shorter work is summed up to one step. */
const BACKGROUND_STEP = 200 * MICROSECOND;
/** `Retry-After` of a 503, in seconds. */
const RETRY_SECONDS = Number(RETRY_SOON['retry-after']);

interface InstanceOptions {
  readonly machine: Machine;
  readonly costs: Costs;
  readonly limits: Limits;
  readonly batchesInFlight: number;
  /** True if lists and batches need a database connection; false on SQLite. */
  readonly pooled: boolean;
}

interface Waiting {
  readonly request: Request;
  readonly since: number;
}

/**
 * A simulated process of the service. It has the steps and limits of src/http/app.ts and src/store, in the
 * same order.
 */
export class Instance {
  up = true;
  readonly thread: Thread;
  readonly batches: Slots;
  readonly pool: Slots;
  readonly #clock: Clock;
  readonly #database: Database;
  readonly #options: InstanceOptions;
  readonly #pending: Set<Request> = new Set();
  readonly #inFlight: Record<Kind, number> = { create: 0, list: 0 };
  readonly #inFlightOf: Record<Kind, Map<number, number>> = { create: new Map(), list: new Map() };
  readonly #windows: Map<number, { end: number; count: number }> = new Map();
  #queued: Waiting[] = [];
  #scheduled = false;
  #background = 0;

  constructor(clock: Clock, database: Database, options: InstanceOptions) {
    this.#clock = clock;
    this.#database = database;
    this.#options = options;
    this.thread = new Thread(clock, options.machine, 1);
    this.batches = new Slots(clock, options.batchesInFlight);
    this.pool = new Slots(clock, options.limits.databasePoolSize);
  }

  receive(request: Request): void {
    if (!this.up) {
      request.settle('lost', 0);
      return;
    }
    this.#pending.add(request);
    const { costs, pooled } = this.#options;
    const us = request.kind === 'create' ? costs.service.createUs : costs.service.listUs;
    const inMemory = request.kind === 'list' && !pooled;
    // The main thread spends half of its time on a request before the database work, half after it. A list on
    // SQLite runs as one step on the main thread.
    const first = inMemory ? us : us / 2;
    let rejection: Status | undefined;
    this.#execute(
      request.kind,
      () => {
        rejection = this.#rejectionOf(request);
        return rejection === undefined ? first : costs.service.rejectUs;
      },
      () => {
        if (rejection !== undefined) this.#settle(request, rejection);
        else if (inMemory) this.#finish(request, 'ok');
        else if (request.kind === 'create') this.#create(request, us - first);
        else this.#list(request, us - first);
      },
    );
  }

  /** Ends the process. Its pending requests get no response. */
  end(): void {
    this.up = false;
    this.thread.end();
    const lost = [...this.#pending];
    this.#pending.clear();
    for (const request of lost) request.settle('lost', 0);
  }

  /** Counts a request as in flight, or returns the reason why it is rejected. */
  #rejectionOf({ kind, owner }: Request): Status | undefined {
    const { maxInFlight, tokenRateLimit } = this.#options.limits;
    const ofOwner = this.#inFlightOf[kind].get(owner) ?? 0;
    if (this.#inFlight[kind] >= maxInFlight) return 'overloaded';
    if (tokenRateLimit > 0 && !this.#countInWindow(owner, tokenRateLimit)) return 'limited';
    if (ofOwner >= slotsOfOwner(maxInFlight)) return 'overloaded';
    this.#inFlight[kind] += 1;
    this.#inFlightOf[kind].set(owner, ofOwner + 1);
    return undefined;
  }

  #countInWindow(owner: number, limit: number): boolean {
    let window = this.#windows.get(owner);
    if (window === undefined || window.end <= this.#clock.now) {
      window = { end: this.#clock.now + WINDOW_MS * MILLISECOND, count: 0 };
      this.#windows.set(owner, window);
    }
    if (window.count >= limit) return false;
    window.count += 1;
    return true;
  }

  #list(request: Request, restUs: number): void {
    this.pool.take(() => {
      this.#database.list(request.owner, (succeeded) => {
        this.pool.release();
        const status = succeeded ? 'ok' : 'unavailable';
        this.#execute(
          'list',
          () => restUs,
          () => this.#finish(request, status),
        );
      });
    });
  }

  #create(request: Request, restUs: number): void {
    const respond = (status: Status): void =>
      this.#execute(
        'create',
        () => restUs,
        () => this.#finish(request, status),
      );
    this.#queued.push({ request: { ...request, settle: respond }, since: this.#clock.now });
    this.#schedule();
  }

  /** Schedules a batch after the requests that have already arrived, as src/store/group-commit.ts does. */
  #schedule(): void {
    if (this.#scheduled || this.batches.busy.inUse >= this.batches.busy.units) return;
    this.#scheduled = true;
    this.#execute(
      'create',
      () => this.#options.costs.service.batchUs,
      () => {
        this.#scheduled = false;
        this.#launch();
      },
    );
  }

  #launch(): void {
    const earliest = this.#clock.now - this.#options.limits.databaseAcquireTimeout * MILLISECOND;
    const late = this.#queued.filter(({ since }) => since < earliest);
    for (const { request } of late) request.settle('unavailable', RETRY_SECONDS);
    const ready = late.length === 0 ? this.#queued : this.#queued.filter(({ since }) => since >= earliest);
    const batch = ready.slice(0, MAX_BATCH);
    this.#queued = ready.slice(MAX_BATCH);
    if (batch.length === 0) return;
    this.batches.take(() => undefined);
    this.#schedule();
    this.#withConnection((release) => {
      const owners = batch.map(({ request }) => request.owner);
      this.#database.commit(owners, (succeeded) => {
        release();
        this.batches.release();
        for (const { request } of batch) request.settle(succeeded ? 'ok' : 'unavailable', RETRY_SECONDS);
        if (this.#queued.length > 0) this.#schedule();
      });
    });
  }

  #withConnection(work: (release: () => void) => void): void {
    if (this.#options.pooled) this.pool.take(() => work(() => this.pool.release()));
    else work(() => undefined);
  }

  #finish(request: Request, status: Status): void {
    const { kind, owner } = request;
    this.#inFlight[kind] -= 1;
    this.#inFlightOf[kind].set(owner, (this.#inFlightOf[kind].get(owner) ?? 1) - 1);
    this.#settle(request, status);
  }

  #settle(request: Request, status: Status): void {
    if (!this.#pending.delete(request)) return;
    const limited = status === 'limited' ? (this.#windows.get(request.owner)?.end ?? 0) - this.#clock.now : 0;
    request.settle(status, status === 'ok' ? 0 : Math.max(RETRY_SECONDS, Math.ceil(limited)));
  }

  /** Runs a step on the main thread, and simulates the CPU time that the other threads use for that step. */
  #execute(kind: Kind, costUs: () => number, done: () => void): void {
    const { costs, machine } = this.#options;
    this.thread.execute(() => {
      const crowded = 1 + costs.crowding[kind] * (machine.crowd - 1);
      const seconds = costUs() * crowded * MICROSECOND;
      this.#background += seconds * costs.service.background;
      return seconds;
    }, done);
    if (this.#background < BACKGROUND_STEP) return;
    const step = this.#background;
    this.#background = 0;
    machine.run(
      () => step,
      () => undefined,
    );
  }
}
