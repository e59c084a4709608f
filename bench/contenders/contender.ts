import type { Tally } from '../load/generator.ts';
import type { Usage } from './server-process.ts';

/** CPU seconds during a run. */
export interface CpuUse {
  readonly server: number;
  readonly serverMainThread: number;
  /**
   * Excludes the start of the generator if the generator reports the CPU time of its start separately: a Node script
   * takes most of a second to start.
   */
  readonly generator: number;
  /** The number of threads that the generator can keep busy. */
  readonly generatorThreads: number;
  /** CPU time of all other processes. Undefined when it cannot be measured separately. */
  readonly others: number | undefined;
}

/** The results of one run. A value is undefined when the contender cannot provide it, or without /proc. */
export interface Measurement extends Tally {
  readonly cpu: CpuUse | undefined;
  /** Peak resident memory of the server. */
  readonly peakBytes: number | undefined;
  /** Undefined for a subject that is no server. */
  readonly usage: Usage | undefined;
}

/** A subject of a comparison. */
export interface Contender {
  readonly name: string;
  /** Runs the workload for some seconds. `run` is the number of the run, so that each has distinct ids. */
  measure(run: number, seconds: number): Promise<Measurement>;
}
