import { defaultOf } from '../../src/config.ts';

export type EngineName = 'postgres' | 'sqlite';
export type Kind = 'create' | 'list';

/**
 * Costs of requests on one engine: CPU times in microseconds. `npm run capacity -- --measure` measures them.
 */
export interface Costs {
  /** CPU time of the service's main thread. */
  readonly service: {
    readonly createUs: number;
    /** CPU time per batch of creates. */
    readonly batchUs: number;
    readonly listUs: number;
    /** CPU time per rejected request. */
    readonly rejectUs: number;
    /** CPU time of the service's other threads, divided by that of its main thread. */
    readonly background: number;
  };
  /** CPU time of the PostgreSQL server, or of SQLite's writer thread. */
  readonly database: {
    readonly createUs: number;
    readonly batchUs: number;
    readonly listUs: number;
  };
  /** Milliseconds per sync of the disk. */
  readonly syncMs: number;
  /** CPU time of the load generator per request. */
  readonly generatorUs: number;
  /**
   * Relative slowdown of an instance's steps for each other busy instance on its machine. The instances
   * compete for CPU caches.
   */
  readonly crowding: Readonly<Record<Kind, number>>;
}

/** A fault: an instance or a database node is down for `seconds`, from the time `at`. */
export interface Fault {
  readonly what: 'instance' | 'node';
  readonly index: number;
  readonly at: number;
  readonly seconds: number;
}

export interface Plan {
  readonly engine: EngineName;
  readonly instances: number;
  /** Number of database nodes, which share the owners. */
  readonly nodes: number;
  readonly owners: number;
  /** Exponent of the Zipf distribution of requests over owners; 0 for equal shares. */
  readonly skew: number;
  /** Share of creates among the requests, 0 to 1. The rest are lists of 20 plants. */
  readonly creates: number;
  /**
   * The load: connections that each wait for a response before the next request, or a rate of random
   * arrivals.
   */
  readonly load: { readonly connections: number } | { readonly perSecond: number };
  /**
   * `shared`: one machine for everything, including the load generators. `separate`: one machine per instance
   * and per node.
   */
  readonly layout: 'shared' | 'separate';
  /** Number of cores of each machine. */
  readonly cores: number;
  /** Number of cores that other processes and other virtual machines use on the shared machine. */
  readonly otherCores: number;
  /** Milliseconds of a round trip between two machines. */
  readonly networkMs: number;
  readonly limits: Limits;
  /** Max number of retries per request. The pauses are those of the client package. */
  readonly retries: number;
  /** Seconds from the loss of a node until the next node serves its owners. */
  readonly failoverSeconds: number;
  readonly faults: readonly Fault[];
  /** Seconds of the simulation that count, after the `warmUp` seconds that do not count. */
  readonly seconds: number;
  readonly warmUp: number;
  readonly seed: number;
}

/** Settings of the service that limit its load. src/config.ts describes them. */
export interface Limits {
  readonly maxInFlight: number;
  readonly databasePoolSize: number;
  readonly databaseAcquireTimeout: number;
  readonly tokenRateLimit: number;
}

export const defaultLimits: Limits = {
  maxInFlight: Number(defaultOf('maxInFlight')),
  databasePoolSize: Number(defaultOf('databasePoolSize')),
  databaseAcquireTimeout: Number(defaultOf('databaseAcquireTimeout')),
  tokenRateLimit: Number(defaultOf('tokenRateLimit')),
};

/** Number of owners in the measured loads, and the Zipf exponent of their requests. */
export const measuredOwners = { owners: 50, skew: 1 };

/**
 * The outcome of a request, as a status or error code. `limited`: 429. `overloaded`: 50301. `unavailable`:
 * 50300. `lost`: no response.
 */
export type Status = 'ok' | 'limited' | 'overloaded' | 'unavailable' | 'lost';

export interface Request {
  readonly kind: Kind;
  readonly owner: number;
  /** Ends the request, and is called once. `retryAfter` is in seconds. */
  readonly settle: (status: Status, retryAfter: number) => void;
}

export const MICROSECOND = 1e-6;
export const MILLISECOND = 1e-3;
