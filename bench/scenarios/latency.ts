import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { type Comparison, compare } from '../compare.ts';
import { bareNode } from '../contenders/baselines.ts';
import { httpContender } from '../contenders/http-contender.ts';
import { plantStore } from '../contenders/plant-store.ts';
import { startSubjects } from '../contenders/subject.ts';
import { COLD_SECONDS, openLoop } from '../load/open-loop.ts';
import { comparisonTable, figuresOf } from '../report/figures.ts';
import { decimals, show, type Table, whole } from '../report/table.ts';
import { createInOrder, deleteInOrder, listOfTwenty, type Workload } from '../workload.ts';
import { type Bench, type Part, type Report, reportOf } from './scenario.ts';

const SHARES = [0.25, 0.5, 0.75];
const HALF = 0.5;

/**
 * Run numbers reserved for each request rate: more than there are rounds. The run number determines the ids,
 * so no two runs use the same ids.
 */
const RUNS_A_RATE = 110;

/** Seconds of warm-up at a constant rate. V8 has compiled the code before, at full load. */
const WARM_UP = 1;

export const latencyPart: Part = {
  name: 'latency',
  about: 'latency at 25, 50 and 75 % of full load, compared with the bare handler at the same rates',
  run: runLatency,
};

async function runLatency(bench: Bench): Promise<Report> {
  const full: Comparison[] = [];
  const atRates: Comparison[] = [];
  for (const workload of [createInOrder, listOfTwenty, deleteInOrder]) {
    const measured = await compareAtRates(bench, workload);
    full.push(measured.full);
    atRates.push(measured.atRates);
  }
  const [createP99, listP99, deleteP99] = atRates.map(p99ToBareAtHalf);
  const report = reportOf([...full, ...atRates], { createP99, listP99, deleteP99 });
  return { ...report, tables: [...full.map(comparisonTable), ...atRates.map(tableOf)] };
}

/** Measures the service and the bare node:http server, each at the same shares of the service's full rate. */
async function compareAtRates(
  bench: Bench,
  workload: Workload,
): Promise<{ full: Comparison; atRates: Comparison }> {
  await using resources = new AsyncDisposableStack();
  const folder = await mkdtemp(join(bench.folder, 'latency-'));
  const subjects = [plantStore, bareNode];
  const started = await startSubjects(subjects, { folder, signal: bench.signal }, resources);
  const atFullLoad = started.map((subject) => httpContender(subject, workload, bench));
  const full = await compare(`${workload.name}, full load`, atFullLoad, bench.plan);
  const fullRate = figuresOf(full.contenders[0]?.runs ?? [])?.perSecond;
  const work = `${workload.name}, constant rate`;
  if (fullRate === undefined) return { full, atRates: { work, contenders: [] } };
  const contenders = SHARES.flatMap((share, index) =>
    started.map(({ name, running }) =>
      httpContender(
        { name: nameAt(share, name), running },
        { ...workload, ids: (run) => workload.ids((index + 1) * RUNS_A_RATE + run) },
        { ...bench, generator: openLoop(share * fullRate) },
      ),
    ),
  );
  const { warmUp, seconds } = bench.plan;
  const plan = { ...bench.plan, warmUp: Math.min(warmUp, WARM_UP), seconds: seconds + COLD_SECONDS };
  return { full, atRates: await compare(work, contenders, plan) };
}

function nameAt(share: number, name: string): string {
  return `${share * 100} %, ${name}`;
}

/** Returns the service's p99 latency at half load, divided by that of the bare node:http server. */
function p99ToBareAtHalf({ contenders }: Comparison): number | undefined {
  const [p99, ofBare] = [plantStore.name, bareNode.name].map((name) => {
    const one = contenders.find((contender) => contender.name === nameAt(HALF, name));
    return one && figuresOf(one.runs)?.p99Ms;
  });
  return p99 === undefined || ofBare === undefined ? undefined : p99 / ofBare;
}

function tableOf({ work, contenders }: Comparison): Table {
  const rows = contenders.map(({ name, runs }) => {
    const figures = figuresOf(runs);
    if (figures === undefined) return [`  ${name}`, 'the generator was the limit'];
    return [
      `  ${name}`,
      whole(figures.perSecond),
      ...[figures.p50Ms, figures.p99Ms, figures.p999Ms].map((ms) => show(ms, decimals(2))),
      String(figures.failures),
    ];
  });
  return [[work, 'a second', 'p50 ms', 'p99 ms', 'p99.9 ms', 'failures'], ...rows];
}
