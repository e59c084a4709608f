import type { Contender, Measurement } from './contenders/contender.ts';

/** The results of one workload. Each compared program (contender) has one run per round. */
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
  /** Seconds of unmeasured load before the first round; 0 for none. */
  readonly warmUp: number;
  /**
   * Number of responses that the warm-up must reach. The warm-up is repeated up to MAX_REPEATED times, since
   * V8 compiles code more slowly on a busy machine.
   */
  readonly warmUpAnswers?: number;
}

/**
 * Run number of the first repeated warm-up; the next repetitions add 1 each. No round has such a number, so
 * no two runs use the same ids.
 */
const FIRST_REPEATED = 900;
const MAX_REPEATED = 50;

/**
 * Measures the contenders alternately, so that other load on the machine affects all of them equally. Each
 * round starts with a different contender, since a contender is slower right after one that used all cores.
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
