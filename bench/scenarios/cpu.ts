import type { Comparison, Runs } from '../compare.ts';
import { bareNode, plainFastify } from '../contenders/baselines.ts';
import type { Measurement } from '../contenders/contender.ts';
import { plantStore, plantStoreOn } from '../contenders/plant-store.ts';
import { comparisonJson, median } from '../report/figures.ts';
import { decimals, show, type Table } from '../report/table.ts';
import { createInOrder, deleteInOrder, listOfTwenty } from '../workload.ts';
import { startCheckedPostgres } from './postgres.ts';
import { type Bench, compareSubjects, type Part, type Report } from './scenario.ts';

/** Short rounds and many of them: the medians are then stable on a machine with other load. */
const ROUNDS_FACTOR = 3;
const SECONDS = 1;
const WARM_UP_ANSWERS = 60_000;

/** The cost of a request in one run. CPU times are in microseconds, of all threads of the server. */
const costs = {
  cpu: ({ cpu, answers }: Measurement) => cpu && (cpu.server / answers) * 1e6,
  mainThread: ({ cpu, answers }: Measurement) => cpu && (cpu.serverMainThread / answers) * 1e6,
  kilobytes: ({ allocatedBytes, answers }: Measurement) =>
    allocatedBytes === undefined ? undefined : allocatedBytes / answers / 1_000,
};

export const cpuPart: Part = {
  name: 'cpu',
  about: 'CPU time and allocations per request, compared with the bare handler and plain Fastify',
  run: runCpu,
};

async function runCpu(bench: Bench): Promise<Report> {
  await using resources = new AsyncDisposableStack();
  const server = await startCheckedPostgres(resources);
  const plan = {
    ...bench.plan,
    rounds: bench.plan.rounds * ROUNDS_FACTOR,
    seconds: SECONDS,
    warmUpAnswers: WARM_UP_ANSWERS,
  };
  const subjects = [bareNode, plainFastify, plantStore, plantStoreOn('PostgreSQL', server.url())];
  const comparisons: Comparison[] = [];
  for (const workload of [createInOrder, listOfTwenty, deleteInOrder])
    comparisons.push(await compareSubjects({ ...bench, plan }, subjects, workload));
  const [create, list, remove] = comparisons.map(({ contenders }) =>
    ratioToFirst(contenders, plantStore.name),
  );
  return {
    tables: comparisons.map(tableOf),
    results: { createCpu: create, listCpu: list, deleteCpu: remove },
    json: comparisons.map(comparisonJson),
    contenders: comparisons.flatMap(({ contenders }) => contenders),
  };
}

function ratioToFirst(contenders: readonly Runs[], name: string): number | undefined {
  const runs = contenders.find((one) => one.name === name)?.runs ?? [];
  return ratios(runs, contenders[0]?.runs ?? []).median;
}

/** Compares the CPU time of two contenders, round by round. */
function ratios(runs: readonly Measurement[], others: readonly Measurement[]) {
  const known = runs.flatMap((run, round) => {
    const [cost, other] = [costs.cpu(run), others[round] && costs.cpu(others[round])];
    return cost === undefined || other === undefined ? [] : [cost / other];
  });
  if (known.length === 0) return { median: undefined, range: '' };
  const digits = decimals(2);
  return {
    median: median(known),
    range: `(${digits(Math.min(...known))}–${digits(Math.max(...known))})`,
  };
}

function tableOf({ work, contenders }: Comparison): Table {
  const [first] = contenders;
  const rows = contenders.map(({ name, runs }) => {
    const cells = Object.values(costs).map((cost) => {
      const known = runs.map(cost).filter((value) => value !== undefined);
      return show(known.length === 0 ? undefined : median(known), decimals(1));
    });
    const { median: ratio, range } = ratios(runs, first?.runs ?? []);
    return [`  ${name}`, ...cells, show(ratio, decimals(2)), range];
  });
  return [[work, 'CPU µs', 'main thread', 'kB allocated', '÷ bare', ''], ...rows];
}
