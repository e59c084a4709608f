import type { Contender, Measurement } from './contenders/contender.ts';

/** All runs of some work: those of each contender, in the order of the rounds. */
export interface Comparison {
  readonly work: string;
  readonly contenders: readonly Runs[];
}

export interface Runs {
  readonly name: string;
  readonly runs: readonly Measurement[];
}

export interface Plan {
  readonly rounds: number;
  readonly seconds: number;
  /** Seconds of load before the first round, not counted; 0 for none. */
  readonly warmUp: number;
}

/**
 * Measures the contenders in turns, so that what else the machine does falls on all of them alike. Each round begins with
 * another, since whoever follows one that kept all cores busy finds a machine that is slower for a while.
 */
export async function compare(
  work: string,
  contenders: readonly Contender[],
  { rounds, seconds, warmUp }: Plan,
): Promise<Comparison> {
  process.stderr.write(`${work} …\n`);
  const measured = contenders.map((contender) => {
    const runs: Measurement[] = [];
    return { contender, name: contender.name, runs };
  });
  if (warmUp > 0) for (const { contender } of measured) await contender.measure(0, warmUp);
  for (let run = 1; run <= rounds; run += 1) {
    const first = (run - 1) % measured.length;
    for (const { contender, runs } of [...measured.slice(first), ...measured.slice(0, first)])
      runs.push(await contender.measure(run, seconds));
  }
  return { work, contenders: measured.map(({ name, runs }) => ({ name, runs })) };
}
