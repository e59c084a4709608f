import type { Tally } from '../load/generator.ts';

/** CPU seconds during a run. */
export interface CpuUse {
  readonly server: number;
  readonly serverMainThread: number;
  /** Without its start where it tells that apart, which takes a script of Node a good part of a second. */
  readonly generator: number;
  /** How many threads the generator could keep busy. */
  readonly generatorThreads: number;
  /** All that was neither the server nor the generator; undefined where that cannot be told apart. */
  readonly others: number | undefined;
}

/** One run of a contender. What is undefined cannot be told of it, or cannot be read where there is no /proc. */
export interface Measurement extends Tally {
  readonly cpu: CpuUse | undefined;
  /** The most memory the server had resident. */
  readonly peakBytes: number | undefined;
}

/** One of those that are compared. */
export interface Contender {
  readonly name: string;
  /** Does its work for some seconds. `run` counts its runs, so that each has ids of its own. */
  measure(run: number, seconds: number): Promise<Measurement>;
}
