import type { Comparison, Runs } from '../compare.ts';
import { bareNode, plainFastify } from '../contenders/baselines.ts';
import { plantStore, plantStoreOn } from '../contenders/plant-store.ts';
import { percentile } from '../load/percentile.ts';
import { comparisonJson } from '../report/figures.ts';
import { decimals, show, type Table } from '../report/table.ts';
import { createInOrder, deleteInOrder, listOfTwenty } from '../workload.ts';
import { startCheckedPostgres } from './postgres.ts';
import { type Bench, compareSubjects, type Part, type Report } from './scenario.ts';

const ROUNDS_FACTOR = 3;
const SECONDS = 1;
const WARM_UP_ANSWERS = 60_000;

/**
 * The reported CPU time per request is this quantile of all slices of 1,000 requests. The quantile is low,
 * since other programs make some slices look expensive. They evict caches and, in a virtual machine, their
 * time counts as the server's.
 */
const UNDISTURBED = 0.1;

export const cpuPart: Part = {
  name: 'cpu',
  about: 'CPU time and allocations per request, compared with the bare handler and plain Fastify',
  run: runCpu,
};

async function runCpu(bench: Bench): Promise<Report> {
  await using resources = new AsyncDisposableStack();
  const server = await startCheckedPostgres(resources);
  const rounds = bench.plan.rounds * ROUNDS_FACTOR;
  const plan = { ...bench.plan, rounds, seconds: SECONDS, warmUpAnswers: WARM_UP_ANSWERS };
  const subjects = [bareNode, plainFastify, plantStore, plantStoreOn('PostgreSQL', server.url())];
  const comparisons: Comparison[] = [];
  for (const workload of [createInOrder, listOfTwenty, deleteInOrder])
    comparisons.push(await compareSubjects({ ...bench, plan }, subjects, workload));
  const [createCpu, listCpu, deleteCpu] = comparisons.map(ratioToBare);
  return {
    tables: comparisons.map(tableOf),
    results: { createCpu, listCpu, deleteCpu },
    json: comparisons.map(comparisonJson),
    contenders: comparisons.flatMap(({ contenders }) => contenders),
  };
}

/**
 * Returns a quantile of the CPU time per request, in microseconds; undefined if too few requests were
 * answered.
 */
function cpuOf({ runs }: Runs, share: number): number | undefined {
  const slices = runs.flatMap(({ usage }) => usage?.microseconds ?? []).sort((a, b) => a - b);
  return slices.length === 0 ? undefined : percentile(slices, share);
}

function kilobytesOf({ runs }: Runs): number {
  const bytes = runs.reduce((sum, { usage }) => sum + (usage?.allocatedBytes ?? 0), 0);
  return bytes / 1_000 / runs.reduce((sum, { answers }) => sum + answers, 0);
}

function ratio(one: number | undefined, other: number | undefined): number | undefined {
  return one === undefined || other === undefined ? undefined : one / other;
}

function ratioToBare({ contenders }: Comparison): number | undefined {
  const [bare, , service] = contenders;
  return bare && service && ratio(cpuOf(service, UNDISTURBED), cpuOf(bare, UNDISTURBED));
}

function tableOf({ work, contenders }: Comparison): Table {
  const [bare] = contenders;
  const rows = contenders.map((one) => {
    const cpu = cpuOf(one, UNDISTURBED);
    return [
      `  ${one.name}`,
      show(cpu, decimals(1)),
      show(bare && ratio(cpu, cpuOf(bare, UNDISTURBED)), decimals(2)),
      show(cpuOf(one, 0.5), decimals(1)),
      decimals(1)(kilobytesOf(one)),
    ];
  });
  return [[work, 'CPU µs', '÷ bare', 'disturbed', 'kB allocated'], ...rows];
}
