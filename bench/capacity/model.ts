import { defaultOf } from '../../src/config.ts';

export type EngineName = 'postgres' | 'sqlite';
export type Kind = 'create' | 'list';

/** CPU time on one engine, in microseconds, as `npm run capacity -- --measure` finds it. */
export interface Costs {
  /** The main thread of the service. */
  readonly service: {
    readonly createUs: number;
    /** For each batch of creates. */
    readonly batchUs: number;
    readonly listUs: number;
    /** A request that is rejected before its work. */
    readonly rejectUs: number;
    /** CPU time of its other threads, divided by that of the main thread. */
    readonly background: number;
  };
  /** The server of PostgreSQL, or the writer thread of the embedded engine. */
  readonly database: {
    readonly createUs: number;
    readonly batchUs: number;
    readonly listUs: number;
  };
  /** One sync of the disk, in milliseconds. */
  readonly syncMs: number;
  /** The load generator, for each request. */
  readonly generatorUs: number;
  /**
   * The share by which each other busy instance on the same machine makes the steps of an instance longer: they take
   * each other's caches.
   */
  readonly crowding: Readonly<Record<Kind, number>>;
}

/** A process or server that is down from `at` for `seconds`. */
export interface Fault {
  readonly what: 'instance' | 'node';
  readonly index: number;
  readonly at: number;
  readonly seconds: number;
}

export interface Plan {
  readonly engine: EngineName;
  readonly instances: number;
  /** Database nodes, each with a share of the owners. */
  readonly nodes: number;
  readonly owners: number;
  /** Exponent of the Zipf distribution of requests over owners; 0 for equal shares. */
  readonly skew: number;
  /** Share of requests that are creates; the others are lists of 20. */
  readonly creates: number;
  /** Clients that wait for each response, or requests at random times. */
  readonly load: { readonly connections: number } | { readonly perSecond: number };
  /** `shared`: everything on one machine, load generators included. `separate`: a machine for each instance and node. */
  readonly layout: 'shared' | 'separate';
  /** Of each machine. */
  readonly cores: number;
  /** Cores of the shared machine that other processes and other virtual machines use. */
  readonly otherCores: number;
  /** Round trip between two machines, in milliseconds. */
  readonly networkMs: number;
  readonly limits: Limits;
  /** Retries of a failed request, with the pauses of the client package. */
  readonly retries: number;
  /** Seconds until another node serves the owners of a lost one. */
  readonly failoverSeconds: number;
  readonly faults: readonly Fault[];
  /** Seconds that count, after `warmUp` seconds that do not. */
  readonly seconds: number;
  readonly warmUp: number;
  readonly seed: number;
}

/** Settings of the service; their names are in src/config.ts. */
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

/** The owners of measured requests, and the skew among them. */
export const measuredOwners = { owners: 50, skew: 1 };

/** `limited`: 429. `overloaded`: 50301. `unavailable`: 50300. `lost`: no response. */
export type Status = 'ok' | 'limited' | 'overloaded' | 'unavailable' | 'lost';

export interface Request {
  readonly kind: Kind;
  readonly owner: number;
  /** Called once. `retryAfter` is in seconds. */
  readonly settle: (status: Status, retryAfter: number) => void;
}

export const MICROSECOND = 1e-6;
export const MILLISECOND = 1e-3;
