import type { Contender, Measurement } from './contenders/contender.ts';

/** The results of one workload: each contender has one run per round. */
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
   * The warm-up is repeated until the contender has given this many responses, up to MAX_REPEATED times. On a
   * busy machine, one warm-up is too short for V8 to compile all code.
   */
  readonly warmUpAnswers?: number;
}

/**
 * Run number of the first repeated warm-up; later ones count up from this number. No round has these numbers,
 * so no id occurs twice.
 */
const FIRST_REPEATED = 900;
const MAX_REPEATED = 50;

/**
 * Measures the contenders alternately, so that other load on the machine affects all of them equally. Each
 * round starts with a different contender: any contender is slower right after one that used all cores.
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
