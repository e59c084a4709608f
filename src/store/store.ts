import type { PlantRow } from '../plant.ts';
import { OperatorError } from '../thrown-errors.ts';
import type { FoundToken, Token } from '../token.ts';

/**
 * A change to the store. Engines execute writes in batches and return an outcome for each write. Times are
 * milliseconds since the epoch.
 */
export type Write =
  | (PlantRow & {
      readonly kind: 'createPlant';
      readonly idempotencyKey: string | null;
    })
  | { readonly kind: 'deletePlant'; readonly owner: string; readonly id: bigint }
  | { readonly kind: 'createToken'; readonly token: Token }
  | { readonly kind: 'revokeToken'; readonly id: string; readonly at: number }
  | { readonly kind: 'recordTokenUse'; readonly id: string; readonly at: number };

/** The lock key of a row that a write changes. */
export interface LockKey {
  readonly name: string;
  /** True if writes of the same kind with this key may share a batch. */
  readonly isShared: boolean;
}

/**
 * The result of a write. `createdReplayed` means that an earlier write with the same idempotency key created
 * the plant.
 */
export type Outcome = 'created' | 'createdReplayed' | 'idTaken' | 'keyReused' | 'deleted' | 'absent' | 'done';

/** True for outcomes of writes that changed the store. */
const isChange: Readonly<Record<Outcome, boolean>> = {
  created: true,
  createdReplayed: false,
  idTaken: false,
  keyReused: false,
  deleted: true,
  absent: false,
  done: true,
};

/**
 * The result of a batch. `unchanged` means that none of its writes changed the store, such as deletions of absent plants:
 * that also succeeds on a full disk.
 */
export type CommitResult = 'committed' | 'unchanged' | 'failed';

export function resultOf(outcomes: readonly Outcome[]): CommitResult {
  return outcomes.some((outcome) => isChange[outcome]) ? 'committed' : 'unchanged';
}

export interface StoreLoad extends EngineLoad {
  /** Number of writes queued for a batch. */
  readonly writesWaiting: number;
  /** Number of writes in batches that the engine is committing. */
  readonly writesInFlight: number;
  /** Milliseconds since the oldest batch that the engine is committing began; 0 if there is none. */
  readonly oldestBatchMs: number;
}

/** The load of an engine. Values that do not apply to an engine are 0. */
export interface EngineLoad {
  readonly connections: ConnectionCounts;
  /** Size of the embedded engine's write-ahead log, in bytes. */
  readonly walBytes: number;
  /** Number of failed checkpoints of the embedded engine, since the start. */
  readonly checkpointFailures: number;
  /**
   * Number of times, since the start, that an outdated PostgreSQL primary was found (see TimelineRegression).
   */
  readonly timelineRegressions: number;
}

/**
 * The PostgreSQL primary has a lower timeline number than a primary that this process used before.
 * Acknowledged writes may be lost.
 */
export interface TimelineRegression {
  readonly timeline: number;
  readonly highest: number;
}

/**
 * Tasks of the store: batches of writes, and checkpoints of the embedded engine. `onTaskEnd` reports when a
 * task ends.
 */
export type StoreTask = 'writes' | 'checkpoints';

/** Numbers of connections to a database; all 0 on the embedded engine. */
export interface ConnectionCounts {
  readonly idle: number;
  readonly busy: number;
  /** Number of statements and batches that wait for a connection. */
  readonly waiting: number;
}

/** The range of ids of a page; both ends are included. */
export interface IdRange {
  readonly from: bigint;
  readonly to: bigint;
}

/** Limits of a page. The page ends at the limit that it reaches first. */
export interface PageLimit {
  readonly plants: number;
  /**
   * Max bytes of the page's JSON in UTF-8. Engines may count the first plant without JSON escapes, so a page
   * with only this plant can exceed the limit.
   */
  readonly bytes: number;
}

/** A page of plants in ascending order of id. */
export interface PlantPage {
  /** The JSON array of the plants, with the same bytes on every engine. */
  readonly json: string;
  /** Size of `json` in bytes (UTF-8). An engine that keeps a page measures it once: for 1 KB, that takes 0.2 µs. */
  readonly bytes: number;
  /** Set if the range of ids has plants after this page, which is not empty. */
  readonly cut?: PageCut;
  /**
   * Set only if the first plant alone exceeds the limit of bytes; the page is then empty. The value is the
   * size of this plant's JSON in bytes; an engine may count a short plant without field names and escapes.
   */
  readonly largeBytes?: number;
}

/** The end of a page that plants follow. */
export interface PageCut {
  /** The id of the last plant of the page. */
  readonly last: bigint;
  /** Number of plants on the page: the limit, or fewer if the limit of bytes applied first. */
  readonly count: number;
}

/** A plant that alone exceeds the limit of bytes of a page. */
export interface LargePlant {
  /**
   * The plant's JSON in UTF-8, with the same bytes on every engine. The ArrayBuffer is not shared, so the
   * caller may detach it to free the memory.
   */
  readonly json: Uint8Array;
  readonly id: bigint;
  /** True if the range of ids has plants after this plant. */
  readonly more: boolean;
}

/**
 * Reads and writes plants and tokens for the service. A read sees every write that was acknowledged before
 * the read began; on SQLite, those of other processes before the event-loop iteration of the read began. All
 * methods reject with StoreUnavailable if the store cannot answer.
 */
export interface Store {
  /** Executes one write, possibly in a batch with others. Resolves when the write is durable. */
  write(write: Write): Promise<Outcome>;
  /** Returns the first plants of an owner in a range of ids. The limit bounds the memory of the page. */
  listPlants(owner: string, range: IdRange, limit: PageLimit): Promise<PlantPage>;
  /**
   * Returns the first plant of an owner in a range of ids. The plant may exceed the limit of a page. Returns
   * undefined if the range has no plants.
   */
  readLargePlant(owner: string, range: IdRange): Promise<LargePlant | undefined>;
  findToken(digest: Uint8Array): Promise<FoundToken | undefined>;
  findTokenById(id: string): Promise<FoundToken | undefined>;
  /** True if a token is neither revoked nor, at `now` in milliseconds since the epoch, expired. */
  hasValidTokens(now: number): Promise<boolean>;
  /** True if there is no plant, token or idempotency key. */
  isEmpty(): Promise<boolean>;
  /** Resolves if the store answers and, on PostgreSQL, the service has the privileges and unique keys that it needs. */
  ping(): Promise<void>;
  /** Returns the load. Reads only memory and the size of one file; never throws. */
  load(): StoreLoad;
  /** Commits queued writes and closes the store. No method may be called afterwards. */
  close(): Promise<void>;
}

/** The interface that each engine implements. `openStore` adds the group commit. */
export interface Engine extends Omit<Store, 'write' | 'load'> {
  load(): EngineLoad;
  /**
   * Commits all writes in one transaction: on SQLite in the order of `batch`, on PostgreSQL in any order, so that no
   * lock key may be that of two of them, nor of a batch in flight, unless both may share it (`lockKeys`). When all are
   * durable, resolves to an outcome for each write. Rejects with StatementRejected if nothing changed and a smaller
   * batch may succeed, otherwise with StoreUnavailable.
   */
  commit(batch: readonly Write[]): Promise<readonly Outcome[]>;
}

/** The write-ahead log of an embedded store that was closed. It may hold writes that the database file lacks. */
export interface LogLeft {
  readonly file: string;
  /** If `isSeparated`, what has happened and what to do; otherwise the error of the checkpoint. */
  readonly reason: string;
  /** True if the database file was moved, removed or replaced, so that it is no longer next to its log. */
  readonly isSeparated: boolean;
}

/** The store cannot execute the request now, or the outcome is unknown. */
export class StoreUnavailable extends OperatorError {
  override readonly name = 'StoreUnavailable';
}

/** The store cannot execute the write now. No part of the write was stored. */
export class NothingStored extends StoreUnavailable {}

/** True if the write that failed with `error` may be stored nevertheless. */
export function isOutcomeUnknown(error: unknown): boolean {
  return error instanceof StoreUnavailable && !(error instanceof NothingStored);
}

/** Stored data is damaged, so a retry of the request fails too. */
export class StoreDamaged extends StoreUnavailable {}

/** Returns the error for a page that is not valid JSON. `from` is the first id of its range. */
export function unreadablePage(from: bigint): StoreDamaged {
  return new StoreDamaged(
    `a page of plants cannot be read as JSON; it begins at id ${from}; \`plant-store export\` may read them`,
  );
}

/**
 * Returns the error of a request whose write was not sent, since a read before it failed with `error`. Returns
 * other errors than StoreUnavailable unchanged.
 */
export function withNothingStored(error: unknown): unknown {
  if (!(error instanceof StoreUnavailable) || error instanceof StoreDamaged) return error;
  return new NothingStored(error.message, { cause: error.cause });
}

/** The queue of writes is full. */
export class StoreOverloaded extends Error {
  override readonly name = 'StoreOverloaded';
}

/** The database rejected a statement or a batch, and nothing changed. A smaller batch may succeed. */
export class StatementRejected extends OperatorError {
  override readonly name = 'StatementRejected';
}

/**
 * The store cannot be opened, was made by a newer version of the service, or is another program's database.
 */
export class StoreNotOpened extends OperatorError {
  override readonly name = 'StoreNotOpened';
}

/** Settings for connections to PostgreSQL; the embedded engine has none. */
export interface ConnectionOptions {
  /** Max connections to the primary. */
  readonly poolSize: number;
  /** Max milliseconds to wait for a connection, and of a write in the queue. */
  readonly acquireTimeoutMs: number;
  /** Max milliseconds for one statement. */
  readonly statementTimeoutMs: number;
  /** True for a command or migration. Its transactions set the timeouts, and its sessions have the name of a command. */
  readonly ofCommand?: boolean;
  /** True to prepare statements by name. A pooler in transaction mode may not support this. */
  readonly prepare: boolean;
}

export interface MigrationOptions {
  /** Called before migrations are applied to an existing store, with their names. */
  readonly onMigrate?: (names: readonly string[]) => void;
  /** Called once if the migration waits for a lock of another session of PostgreSQL. */
  readonly onBlocked?: () => void;
  /** True to reject an embedded file without tables, instead of creating a store in it. */
  readonly mustExist?: boolean;
  /** Called at the close if the write-ahead log still holds writes that the database file lacks. */
  readonly onLogLeft?: (left: LogLeft) => void;
}

export interface StoreOptions extends MigrationOptions {
  /** Called once after a fatal error; the process must restart. */
  readonly onFatal: (error: Error) => void;
  /** Returns the current time, in milliseconds since the epoch. PostgreSQL has its own clock for idempotency keys. */
  readonly now: () => number;
  readonly connections: ConnectionOptions;
  /** True if only tokens are written: then, on SQLite, nothing but a changed table of tokens rejects the opening. */
  readonly onlyTokens?: boolean;
  /** Called if the store is new, once its tables are created, even if the opening fails later. */
  readonly onCreated?: () => void;
  /** Called after each batch, with its number of writes and its duration in seconds. */
  readonly onCommit?: (writes: number, seconds: number, result: CommitResult) => void;
  /**
   * Deletes old idempotency keys every minute while the store is open. Only the service sets this: commands are short, and
   * may run on a machine with a wrong clock.
   */
  readonly keyDeletion?: KeyDeletion;
  /**
   * Called after each checkpoint, and after each batch that changed the store or failed, but not with StatementRejected.
   * `failure` is undefined after a success.
   */
  readonly onTaskEnd?: (task: StoreTask, failure: unknown) => void;
  /**
   * Called when the PostgreSQL primary has a lower timeline number than a primary that this process used
   * before. Acknowledged writes may be lost.
   */
  readonly onTimelineRegression?: (regression: TimelineRegression) => void;
  /**
   * Called soon after the opening, once for each fault in the setup of PostgreSQL by which acknowledged writes may be lost, or
   * a failover may fail.
   */
  readonly onSetupFault?: (fault: string) => void;
  /** Called with the text of each warning of PostgreSQL about a statement that had its effect. */
  readonly onDatabaseWarning?: (message: string) => void;
  /** Called with the reason of each login that PostgreSQL rejects while other connections work. */
  readonly onLoginRejected?: (reason: string) => void;
}

export interface KeyDeletion {
  /** Called when old keys could not be deleted. The next attempt follows within a minute. */
  readonly onFailure: (error: unknown) => void;
  /**
   * Called if the clock of this machine differs from that of PostgreSQL, by which keys age, when the difference is noticed.
   * `aheadMs`: milliseconds by which this machine's clock is ahead; negative if it is behind.
   */
  readonly onClockDifference?: (aheadMs: number) => void;
}

/** Milliseconds until an idempotency key expires. Lookups ignore expired keys. */
export const KEY_LIFETIME_MS = 24 * 60 * 60 * 1_000;

/**
 * Age in milliseconds from which idempotency keys are deleted. Exceeds their lifetime, so that a clock that is up to a
 * day fast for some time deletes no key that is valid once the clock is right.
 */
export const KEY_DELETION_AGE_MS = 2 * KEY_LIFETIME_MS;
