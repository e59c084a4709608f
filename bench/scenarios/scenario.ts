import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { type Comparison, compare, type Plan, type Runs } from '../compare.ts';
import { httpContender, type LoadOptions } from '../contenders/http-contender.ts';
import { type Subject, startSubjects } from '../contenders/subject.ts';
import { comparisonJson, comparisonTable } from '../report/figures.ts';
import type { Table } from '../report/table.ts';
import type { Results } from '../report/targets.ts';
import type { Workload } from '../workload.ts';

/** Sizes of the stores in the part `growth`: some minutes, or all sizes. */
export type Growth = 'short' | 'full';

/** The input of each part of the benchmark. */
export interface Bench extends LoadOptions {
  readonly plan: Plan;
  readonly growth: Growth;
  /** Alternatives to our service, without those that cannot be installed. */
  readonly alternatives: readonly Subject[];
  /** Folder for files, deleted after the run. */
  readonly folder: string;
}

export interface Report {
  readonly tables: readonly Table[];
  readonly results: Results;
  readonly json: unknown;
  readonly contenders: readonly Runs[];
}

/** A part of the benchmark, selectable by name. */
export interface Part {
  readonly name: string;
  /** Description of the part in `--help`: one line. */
  readonly about: string;
  run(bench: Bench): Promise<Report>;
}

/** Returns the report of a part that consists of comparisons. */
export function reportOf(comparisons: readonly Comparison[], results: Results): Report {
  return {
    tables: comparisons.map(comparisonTable),
    results,
    json: comparisons.map(comparisonJson),
    contenders: comparisons.flatMap(({ contenders }) => contenders),
  };
}

/** Starts servers, compares them under a workload, and stops them. */
export async function compareSubjects(
  bench: Bench,
  subjects: readonly Subject[],
  workload: Workload,
): Promise<Comparison> {
  await using resources = new AsyncDisposableStack();
  const folder = await mkdtemp(join(bench.folder, 'part-'));
  const started = await startSubjects(subjects, { folder, signal: bench.signal }, resources);
  const contenders = started.map((subject) => httpContender(subject, workload, bench));
  return await compare(workload.name, contenders, bench.plan);
}
