import type { Token } from '../token.ts';

/** A plant as a store keeps it. */
export interface PlantRow {
  readonly owner: string;
  readonly id: bigint;
  readonly name: string;
  readonly tag: string | null;
}

/** What a store remembers of the first request with an idempotency key. Times are milliseconds since the epoch. */
export interface KeyRow {
  readonly owner: string;
  readonly key: string;
  readonly digest: Uint8Array;
  readonly outcome: string;
  readonly firstUsedAt: number;
}

/** All that a store keeps, as it is at one moment, in pages that fit into memory. */
export interface Contents {
  /** How many plants there are, of one owner or of all. */
  countPlants(owner?: string): Promise<number>;
  /** Those of one owner by their ids; those of all by owner and id. */
  plants(owner?: string): AsyncIterable<readonly PlantRow[]>;
  tokens(): AsyncIterable<readonly Token[]>;
  keys(): AsyncIterable<readonly KeyRow[]>;
}

/** Contents in the making. */
export interface Filling extends Contents {
  addPlants(plants: readonly PlantRow[]): Promise<void>;
  addTokens(tokens: readonly Token[]): Promise<void>;
  addKeys(keys: readonly KeyRow[]): Promise<void>;
}

/** What becomes of plants whose ids are taken: none of the batch is saved, or the first plant stays, or the last counts. */
export const onConflicts = ['fail', 'skip', 'replace'] as const;

export type OnConflict = (typeof onConflicts)[number];

/**
 * The port for commands that move all that a store keeps, beside the service and without its group commit.
 * All methods reject with StoreUnavailable when the store cannot answer.
 */
export interface Bulk {
  /** Saves plants together; resolves, once they are durable, to the places of those whose ids were taken. */
  savePlants(plants: readonly PlantRow[], onConflict: OnConflict): Promise<readonly number[]>;
  /** Lends the contents for reading. */
  read<T>(work: (contents: Contents) => Promise<T>): Promise<T>;
  /**
   * Lends an empty store for filling. All of it counts once the work is done and durable, or nothing if it rejects.
   * Rejects with StoreNotEmpty.
   */
  fill<T>(work: (filling: Filling) => Promise<T>): Promise<T>;
  /** What is wrong with the store as such: its files and its schema. Empty for a sound one. */
  inspect(): Promise<readonly string[]>;
  /**
   * What keeps the store from being read as a whole by this version: a newer one made it, or an older one. Empty when
   * nothing does.
   */
  inspectSchema(): Promise<readonly string[]>;
  close(): Promise<void>;
}

/** A store that was to be filled has something in it. */
export class StoreNotEmpty extends Error {
  override readonly name = 'StoreNotEmpty';
}
