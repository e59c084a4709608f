import type { Contender, Measurement } from './contenders/contender.ts';

/** The runs of a workload: for each contender, one run a round. */
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
  /** Seconds of load before the first round, not measured; 0 for none. */
  readonly warmUp: number;
  /** Repeats the warm-up until so many responses: on a busy machine seconds are too short to compile the code. */
  readonly warmUpAnswers?: number;
}

/** The first number of repeated warm-ups, above those of all runs, so that their ids are distinct. */
const FIRST_REPEATED = 900;
const MAX_REPEATED = 50;

/**
 * Measures the contenders alternately, so that other load on the machine affects all of them equally. Each round starts
 * with a different contender, because any contender is slower for a while after one that used all cores.
 */
export async function compare(
  work: string,
  contenders: readonly Contender[],
  { rounds, seconds, warmUp, warmUpAnswers = 0 }: Plan,
): Promise<Comparison> {
  process.stderr.write(`${work} …\n`);
  const measured = contenders.map((contender) => {
    const runs: Measurement[] = [];
    return { contender, name: contender.name, runs };
  });
  if (warmUp > 0) {
    for (const { contender } of measured) {
      let { answers } = await contender.measure(0, warmUp);
      for (let again = 0; answers < warmUpAnswers && again < MAX_REPEATED; again += 1)
        answers += (await contender.measure(FIRST_REPEATED + again, warmUp)).answers;
    }
  }
  for (let run = 1; run <= rounds; run += 1) {
    const first = (run - 1) % measured.length;
    for (const { contender, runs } of [...measured.slice(first), ...measured.slice(0, first)])
      runs.push(await contender.measure(run, seconds));
  }
  return { work, contenders: measured.map(({ name, runs }) => ({ name, runs })) };
}
