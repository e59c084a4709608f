import type { Token } from '../token.ts';

/**
 * A change to the store. An engine takes writes in batches and answers each with its own outcome. Times are
 * milliseconds since the epoch.
 */
export type Write =
  | {
      readonly kind: 'createPlant';
      readonly owner: string;
      readonly id: bigint;
      readonly name: string;
      readonly tag: string | null;
      readonly idempotency: { readonly key: string; readonly digest: Uint8Array } | null;
    }
  | { readonly kind: 'deletePlant'; readonly owner: string; readonly id: bigint }
  | { readonly kind: 'createToken'; readonly token: Token }
  | { readonly kind: 'revokeToken'; readonly id: string; readonly at: number }
  | { readonly kind: 'recordTokenUse'; readonly id: string; readonly at: number };

/** The result of a write. `createdReplayed`: the idempotency key created this plant before; nothing was done again. */
export type Outcome = 'created' | 'createdReplayed' | 'idTaken' | 'keyReused' | 'deleted' | 'absent' | 'done';

/** How a batch of writes ended. */
export type CommitResult = 'committed' | 'failed';

/** The state of a store at a moment. */
export interface StoreLoad extends EngineLoad {
  /** Writes that wait for a batch. */
  readonly writesWaiting: number;
  /** Writes in batches that are under way. */
  readonly writesInFlight: number;
}

/** The engine's part of it; what an engine does not have is 0. */
export interface EngineLoad {
  readonly connections: ConnectionCounts;
  /** The size of the embedded engine's write-ahead log, in bytes. */
  readonly walBytes: number;
  /** Failed checkpoints of the embedded engine, since the start. */
  readonly checkpointFailures: number;
  /** Primaries on a lower timeline than one before them, since the start. */
  readonly timelineRegressions: number;
}

/** A PostgreSQL primary on a lower timeline than the highest before it: writes acknowledged there may be lost. */
export interface TimelineRegression {
  readonly timeline: number;
  readonly highest: number;
}

/** Work of a store that may fail for a while: batches of writes, and checkpoints of the embedded engine. */
export type StoreTask = 'writes' | 'checkpoints';

/** Connections to a database; all are 0 on an engine that has none. */
export interface ConnectionCounts {
  readonly idle: number;
  readonly busy: number;
  /** Statements and batches that wait for a connection. */
  readonly waiting: number;
}

/** The ids a page is taken from, both ends included. */
export interface IdRange {
  readonly from: bigint;
  readonly to: bigint;
}

/** Limits of a page; the page ends at whichever it reaches first. */
export interface PageLimit {
  readonly plants: number;
  /** UTF-8 bytes of JSON. A page has at least one plant, even if that one is larger. */
  readonly bytes: number;
}

/** Plants in ascending order of id. */
export interface PlantPage {
  /** The JSON array of the plants, rendered by the engine; the same bytes from every engine. Up to `bytes`, or one plant. */
  readonly json: string;
  /** May be below the limit of plants although `more` is true. */
  readonly count: number;
  /** The id of the last plant; undefined on an empty page. */
  readonly last: bigint | undefined;
  /** Whether plants follow in the range. */
  readonly more: boolean;
}

/**
 * The port to a store of plants and tokens. Reads see every write that was acknowledged before they began.
 * All methods reject with StoreUnavailable when the store cannot answer.
 */
export interface Store {
  /** Carries out one write, alone or together with others; resolves when it is durable. */
  write(write: Write): Promise<Outcome>;
  /** The first plants of an owner in a range. Memory is bounded by the limit, or by one plant. */
  listPlants(owner: string, range: IdRange, limit: PageLimit): Promise<PlantPage>;
  findToken(digest: Uint8Array): Promise<Token | undefined>;
  findTokenById(id: string): Promise<Token | undefined>;
  /** Whether there is any token, revoked and expired ones included. */
  hasTokens(): Promise<boolean>;
  /** Resolves when the store answers, and lets the service do what it needs to. */
  ping(): Promise<void>;
  /** In memory, but for the size of one file; never throws. */
  load(): StoreLoad;
  /** Commits what waits and lets go of the store. No call may follow. */
  close(): Promise<void>;
}

/** What an engine provides; `openStore` adds the group commit. */
export interface Engine extends Omit<Store, 'write' | 'load'> {
  load(): EngineLoad;
  /**
   * Commits all writes in one transaction, in their order, and resolves to an outcome for each once they are durable.
   * Rejects with StoreUnavailable, or with BatchRejected when nothing was done and a smaller batch may succeed.
   */
  commit(batch: readonly Write[]): Promise<readonly Outcome[]>;
}

/** The store cannot take the request now, or cannot say what became of it. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

/** What the store keeps cannot be read, now or later. */
export class StoreDamaged extends StoreUnavailable {}

/** More writes wait than the store is willing to hold. */
export class StoreOverloaded extends Error {
  override readonly name = 'StoreOverloaded';
}

/** A batch was rolled back because of what is in it; its members are worth trying one by one. */
export class BatchRejected extends Error {
  override readonly name = 'BatchRejected';
}

/** The store was made by a newer version, or is no store of ours, or cannot be opened. */
export class StoreNotOpened extends Error {
  override readonly name = 'StoreNotOpened';
}

/** How the engine on PostgreSQL uses its connections; the embedded engine has none. */
export interface ConnectionOptions {
  /** Connections at most, to the primary. */
  readonly poolSize: number;
  /** How long a request may wait for a connection. */
  readonly acquireTimeoutMs: number;
  /** How long a statement may take. */
  readonly statementTimeoutMs: number;
  /** Whether statements are prepared by name; a pooler in transaction mode may not allow it. */
  readonly prepare: boolean;
}

export interface StoreOptions {
  /** Called once when the store can no longer be trusted; the process must end and start anew. */
  readonly onFatal: (error: Error) => void;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  readonly connections: ConnectionOptions;
  /** Called after each batch, with the writes in it and the seconds it took. */
  readonly onCommit?: (writes: number, seconds: number, result: CommitResult) => void;
  /** Called when old idempotency keys could not be removed; that is tried again within a minute. */
  readonly onKeysNotDeleted?: (error: unknown) => void;
  /** Called after each batch and each checkpoint; `failure` is undefined when it succeeded. */
  readonly onTaskEnd?: (task: StoreTask, failure: unknown) => void;
  /** Called when a PostgreSQL primary is on a lower timeline than one before it. */
  readonly onTimelineRegression?: (regression: TimelineRegression) => void;
}

/** How long an idempotency key stands for its first answer. */
export const KEY_LIFETIME_MS = 24 * 60 * 60 * 1_000;
