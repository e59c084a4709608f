import type { PlantRow } from '../plant.ts';
import { OperatorError } from '../thrown-errors.ts';
import type { Token } from '../token.ts';

/** A stored idempotency key. Times are milliseconds since the epoch. */
export interface KeyRow {
  readonly owner: string;
  readonly key: string;
  readonly digest: Uint8Array;
  readonly outcome: string;
  readonly firstUsedAt: number;
}

/** The parts of a store that `Contents` reads. */
export const storeParts = ['plants', 'tokens', 'keys'] as const;

export type StorePart = (typeof storeParts)[number];

/** The whole store, read in pages that fit into memory. */
export interface Contents {
  countPlants(owner?: string): Promise<number>;
  /** Reads the plants of one owner sorted by id, or all plants sorted by owner, in the order of the engine, and id. */
  plants(owner?: string): AsyncIterable<readonly PlantRow[]>;
  tokens(): AsyncIterable<readonly Token[]>;
  keys(): AsyncIterable<readonly KeyRow[]>;
}

/** Adds rows to an empty store in one transaction. Clients see the rows only after the commit. */
export interface Filling extends Contents {
  addPlants(plants: readonly PlantRow[]): Promise<void>;
  addTokens(tokens: readonly Token[]): Promise<void>;
  addKeys(keys: readonly KeyRow[]): Promise<void>;
}

/**
 * Ways to save a batch if some of its ids are taken: `fail` saves nothing of the batch, `skip` keeps the
 * stored plants, `replace` overwrites them.
 */
export const onConflicts = ['fail', 'skip', 'replace'] as const;

export type OnConflict = (typeof onConflicts)[number];

/** The result of a check of the schema, and on SQLite also of the database file. */
export interface Inspection {
  /** Set if another version of the program can read the store, or this one after a migration: why, and what to do. */
  readonly otherVersion?: string;
  /** A message for each fault of the store. */
  readonly damages: readonly string[];
}

/**
 * Operations for commands that read or write a whole store. These commands may run while the service runs.
 * All methods reject with StoreUnavailable if the store cannot answer.
 */
export interface Bulk {
  /** Saves plants in one durable transaction. Resolves to the indexes of the plants whose ids were taken. */
  savePlants(plants: readonly PlantRow[], onConflict: OnConflict): Promise<readonly number[]>;
  /**
   * Calls `work` with a snapshot of the store, of which it reads only `parts`: PostgreSQL locks their tables against changes
   * of them. The embedded engine permits one call at a time.
   */
  read<T>(parts: readonly StorePart[], work: (contents: Contents) => Promise<T>): Promise<T>;
  /**
   * Calls `work` in one transaction on an empty store. Commits if `work` resolves; rolls back if `work`
   * rejects. Rejects with StoreNotEmpty if the store is not empty, and with LeftInLog if everything is committed, but the
   * embedded store has a part of it only in its log. On PostgreSQL, rejects with NothingStored during another `fill`.
   */
  fill<T>(work: (filling: Filling) => Promise<T>): Promise<T>;
  /**
   * Checks the schema, and on SQLite also the database file. Rejects with StoreNotOpened if there is no store.
   */
  inspect(): Promise<Inspection>;
  /**
   * Resolves to true if a service seems to use the store. On PostgreSQL, a pooler, another name of the application or 10 s
   * without requests hide it, and a service on another schema of the database counts too.
   */
  isServed(): Promise<boolean>;
  close(): Promise<void>;
}

/** Everything is committed, but an embedded store has a part of it only in its write-ahead log. */
export class LeftInLog extends OperatorError {
  override readonly name = 'LeftInLog';
}

export class StoreNotEmpty extends Error {
  override readonly name = 'StoreNotEmpty';
}
