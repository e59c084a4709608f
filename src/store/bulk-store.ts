import type { PlantRow } from '../plant.ts';
import type { Token } from '../token.ts';

/** A stored idempotency key. Times are milliseconds since the epoch. */
export interface KeyRow {
  readonly owner: string;
  readonly key: string;
  readonly digest: Uint8Array;
  readonly outcome: string;
  readonly firstUsedAt: number;
}

/** A snapshot of the whole store, in pages that fit into memory. */
export interface Contents {
  /** Counts the plants of one owner or of all. */
  countPlants(owner?: string): Promise<number>;
  /** Reads the plants of one owner sorted by id, or all sorted by owner and id. */
  plants(owner?: string): AsyncIterable<readonly PlantRow[]>;
  tokens(): AsyncIterable<readonly Token[]>;
  keys(): AsyncIterable<readonly KeyRow[]>;
}

/** The writes of `fill`, which other clients see only after the commit. */
export interface Filling extends Contents {
  addPlants(plants: readonly PlantRow[]): Promise<void>;
  addTokens(tokens: readonly Token[]): Promise<void>;
  addKeys(keys: readonly KeyRow[]): Promise<void>;
}

/** For plants whose ids are taken: save nothing of the batch, keep the stored plant, or overwrite it. */
export const onConflicts = ['fail', 'skip', 'replace'] as const;

export type OnConflict = (typeof onConflicts)[number];

/**
 * The interface of commands that read or write whole stores. They may run while the service runs.
 * All methods reject with StoreUnavailable when the store cannot answer.
 */
export interface Bulk {
  /** Saves plants in one transaction. Resolves, when durable, to the indexes of those whose ids were taken. */
  savePlants(plants: readonly PlantRow[], onConflict: OnConflict): Promise<readonly number[]>;
  /** Calls `work` with a snapshot. */
  read<T>(work: (contents: Contents) => Promise<T>): Promise<T>;
  /**
   * Calls `work` in one transaction on an empty store: all of it is committed, or nothing if `work` rejects.
   * Rejects with StoreNotEmpty.
   */
  fill<T>(work: (filling: Filling) => Promise<T>): Promise<T>;
  /** Returns the faults of files and schema; empty for a sound store. Rejects with StoreNotOpened if there is none. */
  inspect(): Promise<readonly string[]>;
  /**
   * Returns why this version cannot read the whole store: a newer or an older version created its schema.
   * Empty when it can. Rejects with StoreNotOpened if there is no store.
   */
  inspectSchema(): Promise<readonly string[]>;
  close(): Promise<void>;
}

/** `fill` needs an empty store, and this one is not. */
export class StoreNotEmpty extends Error {
  override readonly name = 'StoreNotEmpty';
}
