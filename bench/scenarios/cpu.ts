import type { Comparison, Runs } from '../compare.ts';
import { bareNode, plainFastify } from '../contenders/baselines.ts';
import { plantStore, plantStoreOn } from '../contenders/plant-store.ts';
import { cpuOf, cpuRatio } from '../report/cpu-per-request.ts';
import { comparisonJson } from '../report/figures.ts';
import { decimals, show, type Table } from '../report/table.ts';
import { createInOrder, createWithKey, deleteInOrder, listOfTwenty } from '../workload.ts';
import { startCheckedPostgres } from './postgres.ts';
import { type Bench, compareSubjects, type Part, type Report } from './scenario.ts';

const ROUNDS_FACTOR = 3;
const SECONDS = 1;
const WARM_UP_ANSWERS = 60_000;

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
  for (const workload of [createInOrder, listOfTwenty, deleteInOrder, createWithKey])
    comparisons.push(await compareSubjects({ ...bench, plan }, subjects, workload));
  const [createCpu, listCpu, deleteCpu] = comparisons.map(ratioToBare);
  return {
    tables: comparisons.map(tableOf),
    results: { createCpu, listCpu, deleteCpu },
    json: comparisons.map(comparisonJson),
    contenders: comparisons.flatMap(({ contenders }) => contenders),
  };
}

function kilobytesOf({ runs }: Runs): number {
  const bytes = runs.reduce((sum, { usage }) => sum + (usage?.allocatedBytes ?? 0), 0);
  return bytes / 1_000 / runs.reduce((sum, { answers }) => sum + answers, 0);
}

function ratioToBare({ contenders }: Comparison): number | undefined {
  const [bare, , service] = contenders;
  return cpuRatio(service, bare);
}

function tableOf({ work, contenders }: Comparison): Table {
  const [bare] = contenders;
  const rows = contenders.map((one) => [
    `  ${one.name}`,
    show(cpuOf(one), decimals(1)),
    show(cpuRatio(one, bare), decimals(2)),
    show(cpuOf(one, 0.5), decimals(1)),
    decimals(1)(kilobytesOf(one)),
  ]);
  return [[work, 'CPU µs', '÷ bare', 'disturbed', 'kB allocated'], ...rows];
}
