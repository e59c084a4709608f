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

/** A snapshot of the whole store, read in pages that fit into memory. */
export interface Contents {
  countPlants(owner?: string): Promise<number>;
  /** Reads the plants of one owner sorted by id, or all plants sorted by owner and id. */
  plants(owner?: string): AsyncIterable<readonly PlantRow[]>;
  tokens(): AsyncIterable<readonly Token[]>;
  keys(): AsyncIterable<readonly KeyRow[]>;
}

/** Adds rows to a new store, in one transaction. Other clients see them only after the commit. */
export interface Filling extends Contents {
  addPlants(plants: readonly PlantRow[]): Promise<void>;
  addTokens(tokens: readonly Token[]): Promise<void>;
  addKeys(keys: readonly KeyRow[]): Promise<void>;
}

/**
 * What happens to a batch in which ids are taken: it fails as a whole, or the stored plants are kept, or they
 * are replaced.
 */
export const onConflicts = ['fail', 'skip', 'replace'] as const;

export type OnConflict = (typeof onConflicts)[number];

/**
 * The interface of commands that read or write whole stores. They may run while the service runs. All methods
 * reject with StoreUnavailable if the store cannot answer.
 */
export interface Bulk {
  /**
   * Saves plants in one transaction. Resolves, when they are durable, to the indexes of those whose ids were
   * taken.
   */
  savePlants(plants: readonly PlantRow[], onConflict: OnConflict): Promise<readonly number[]>;
  read<T>(work: (contents: Contents) => Promise<T>): Promise<T>;
  /**
   * Calls `work` in one transaction on an empty store. Commits all of it, or nothing if `work` rejects.
   * Rejects with StoreNotEmpty if the store is not empty.
   */
  fill<T>(work: (filling: Filling) => Promise<T>): Promise<T>;
  /**
   * Returns the faults of files and schema; empty for a sound store. Rejects with StoreNotOpened if there is
   * no store.
   */
  inspect(): Promise<readonly string[]>;
  /**
   * Returns why this version cannot read the whole store: a newer or an older version created its schema.
   * Empty if this version can. Rejects with StoreNotOpened if there is no store.
   */
  inspectSchema(): Promise<readonly string[]>;
  close(): Promise<void>;
}

export class StoreNotEmpty extends Error {
  override readonly name = 'StoreNotEmpty';
}
