import type { LoadResult } from '../load/generator.ts';
import type { Usage } from './server-process.ts';

/** CPU seconds used during a run. */
export interface CpuUse {
  readonly server: number;
  readonly serverMainThread: number;
  /**
   * CPU seconds of the load generator. A generator that measures its CPU time itself leaves out its start.
   * That is most of a second for a Node script.
   */
  readonly generator: number;
  /** Number of threads that the load generator can keep busy. */
  readonly generatorThreads: number;
  /**
   * CPU seconds of the rest of the machine: all processes but the contender and the load generator. Undefined
   * if not measurable.
   */
  readonly others: number | undefined;
}

/**
 * The results of one run. A value is undefined if the contender cannot provide it, or the machine has no
 * /proc.
 */
export interface Measurement extends LoadResult {
  readonly cpu: CpuUse | undefined;
  /** Peak resident memory of the server; without /proc the current one. Undefined if the server has ended. */
  readonly peakBytes: number | undefined;
  /** CPU time and allocations of the server. Undefined if the contender is no server. */
  readonly usage: Usage | undefined;
  /** CPU seconds of the database server. Undefined if there is none or its time was not measured. */
  readonly databaseSeconds?: number | undefined;
}

/** A program to compare with others under one workload. */
export interface Contender {
  readonly name: string;
  /** Runs the workload for some seconds. Each run has a different number `run`, and so different ids. */
  measure(run: number, seconds: number): Promise<Measurement>;
}
