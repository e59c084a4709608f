import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import {
  MEBIBYTE,
  peakMemory,
  resetPeakMemory,
  residentMemory,
} from '../../test/support/process-resources.ts';
import { type Comparison, compare } from '../compare.ts';
import type { Contender } from '../contenders/contender.ts';
import { openFiller } from '../contenders/fill-store.ts';
import { startPlantStore } from '../contenders/plant-store.ts';
import type { RunningSubject } from '../contenders/subject.ts';
import { runForLoadResult } from '../load/generator.ts';
import { figuresOf } from '../report/figures.ts';
import { NEW_PLANT } from '../workload.ts';
import { type Bench, type Part, type Report, reportOf } from './scenario.ts';

const READER = join(import.meta.dirname, '../load/whole-list-process.ts');
const PLANTS = 1_000_000;
const BYTES = PLANTS * (JSON.stringify(NEW_PLANT).length + 1) + 1;

export const wholeListPart: Part = {
  name: 'whole-list',
  about: 'a list of 1,000,000 plants without a limit',
  run: runWholeList,
};

async function runWholeList(bench: Bench): Promise<Report> {
  await using resources = new AsyncDisposableStack();
  const folder = await mkdtemp(join(bench.folder, 'whole-list-'));
  const running = await startPlantStore({
    folder,
    fill: async (_store, databaseUrl) => {
      await using filler = await openFiller(databaseUrl);
      await filler.fill(PLANTS, 1);
      await filler.settle();
      return undefined;
    },
  });
  resources.defer(() => running.close());
  // Resident memory before the first list: all growth after that comes from the lists.
  const before = await residentMemory(running);
  const comparison = await compare('whole list of 1,000,000, in plants', [reader(running, bench)], {
    ...bench.plan,
    warmUp: 0,
  });
  return reportOf([comparison], {
    wholeList: figuresOf(comparison.contenders[0]?.runs ?? [])?.perSecond,
    wholeListGrowth: growthOf(comparison, before),
  });
}

/** Returns the peak growth of the server's memory, in MiB. */
function growthOf({ contenders }: Comparison, before: number): number {
  const peaks = contenders.flatMap(({ runs }) => runs.map(({ peakBytes = Number.NaN }) => peakBytes));
  return (Math.max(...peaks) - before) / MEBIBYTE;
}

/** Reads the whole list once per run, regardless of the requested duration. */
function reader(running: RunningSubject, { signal }: Bench): Contender {
  const { url, headers } = running;
  return {
    name: 'plant-store',
    measure: async () => {
      await resetPeakMemory(running);
      const args = [READER, `${url}/plants`, JSON.stringify(headers), String(PLANTS), String(BYTES)];
      const result = await runForLoadResult([process.execPath, ...args], signal);
      return { ...result, cpu: undefined, peakBytes: await peakMemory(running), usage: undefined };
    },
  };
}
