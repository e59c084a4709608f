import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { type Comparison, compare } from '../compare.ts';
import { bareNode } from '../contenders/baselines.ts';
import { httpContender } from '../contenders/http-contender.ts';
import { startPlantStore } from '../contenders/plant-store.ts';
import { openLoop } from '../load/open-loop.ts';
import { comparisonTable, figuresOf } from '../report/figures.ts';
import { decimals, show, type Table, whole } from '../report/table.ts';
import { createInOrder } from '../workload.ts';
import { type Bench, type Part, type Report, reportOf } from './scenario.ts';

const SHARES = [0.1, 0.25, 0.5, 0.75, 0.9, 1];
const HALF = 0.5;

/**
 * Run numbers that each request rate reserves. The ids of a run follow from its number. With more numbers
 * than rounds, no two runs use the same ids.
 */
const RUNS_A_RATE = 110;

export const latencyPart: Part = {
  name: 'latency',
  about:
    'latency of creates at constant rates, from 10 to 100 % of full load, and of the bare handler at half',
  run: runLatency,
};

async function runLatency(bench: Bench): Promise<Report> {
  await using resources = new AsyncDisposableStack();
  const running = await startPlantStore({ folder: await mkdtemp(join(bench.folder, 'latency-')) });
  resources.defer(() => running.close());
  const full = await compare(
    'create, full load',
    [httpContender({ name: 'plant-store', running }, createInOrder, bench)],
    bench.plan,
  );
  const fullRate = figuresOf(full.contenders[0]?.runs ?? [])?.perSecond;
  if (fullRate === undefined) return reportOf([full], {});
  const contenders = SHARES.map((share, index) =>
    httpContender(
      { name: `${share * 100} % of full load`, running },
      withRunsFrom((index + 1) * RUNS_A_RATE),
      { ...bench, generator: openLoop(share * fullRate) },
    ),
  );
  const bare = await bareNode.start(await mkdtemp(join(bench.folder, 'latency-bare-')));
  resources.defer(() => bare.close());
  const bareAtHalf = httpContender(
    { name: `${bareNode.name} at that of ${HALF * 100} %`, running: bare },
    createInOrder,
    {
      ...bench,
      generator: openLoop(HALF * fullRate),
    },
  );
  const atRates = await compare('create, constant rate', [...contenders, bareAtHalf], bench.plan);
  const report = reportOf([full, atRates], { p99AtHalfLoad: p99At(HALF, atRates) });
  return { ...report, tables: [comparisonTable(full), latencyTable(atRates)] };
}

function latencyTable({ work, contenders }: Comparison): Table {
  const rows = contenders.map(({ name, runs }) => {
    const figures = figuresOf(runs);
    if (figures === undefined) return [`  ${name}`, 'the generator was the limit'];
    const { perSecond, p50Ms, p99Ms, failures } = figures;
    return [
      `  ${name}`,
      whole(perSecond),
      show(p50Ms, decimals(2)),
      show(p99Ms, decimals(2)),
      String(failures),
    ];
  });
  return [[work, 'a second', 'p50 ms', 'p99 ms', 'failures'], ...rows];
}

function withRunsFrom(first: number) {
  return { ...createInOrder, ids: (run: number) => createInOrder.ids(first + run) };
}

function p99At(share: number, { contenders }: Comparison): number | undefined {
  return figuresOf(contenders[SHARES.indexOf(share)]?.runs ?? [])?.p99Ms;
}
