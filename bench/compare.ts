import type { Generator } from './load/generator.ts';
import { type Measurement, measure } from './measure.ts';
import type { RunningSubject } from './subject.ts';
import type { Workload } from './workloads.ts';

/** All runs of a workload: those of each subject, in the order of the rounds. */
export interface Comparison {
  readonly workload: string;
  readonly subjects: readonly { readonly name: string; readonly runs: readonly Measurement[] }[];
}

export interface Plan {
  readonly generator: Generator;
  readonly connections: number;
  readonly rounds: number;
  readonly seconds: number;
  /** Seconds of load before the first round, not counted; 0 for none. */
  readonly warmUp: number;
  readonly signal: AbortSignal;
}

/** Measures the subjects in turns, so that what else the machine does falls on all of them alike. */
export async function compare(
  running: readonly (RunningSubject & { readonly name: string })[],
  workload: Workload,
  { rounds, warmUp, ...plan }: Plan,
): Promise<Comparison> {
  const subjects = running.map((subject) => {
    const runs: Measurement[] = [];
    return { subject, name: subject.name, runs };
  });
  if (warmUp > 0) {
    for (const { subject } of subjects)
      await measure(subject, workload, { ...plan, run: 0, seconds: warmUp });
  }
  for (let run = 1; run <= rounds; run += 1) {
    for (const { subject, runs } of subjects) runs.push(await measure(subject, workload, { ...plan, run }));
  }
  return { workload: workload.name, subjects: subjects.map(({ name, runs }) => ({ name, runs })) };
}
