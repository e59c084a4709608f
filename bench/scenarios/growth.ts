import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Store } from '../../src/store/store.ts';
import { type Comparison, compare } from '../compare.ts';
import { fillStore } from '../contenders/fill-store.ts';
import { httpContender } from '../contenders/http-contender.ts';
import { createToken, manyAtOnce, OWNER, startPlantStore } from '../contenders/plant-store.ts';
import { type Subject, startSubjects } from '../contenders/subject.ts';
import { ratioOf } from '../report/figures.ts';
import { whole } from '../report/table.ts';
import { createAtRandom, createBehindAll, listOfTwenty } from '../workload.ts';
import { type Bench, type Part, type Report, reportOf } from './scenario.ts';

interface Size {
  readonly plants: number;
  readonly owners: number;
}

/** Store sizes to measure. The first is the reference for the other sizes. */
const sizes: readonly Size[] = [
  { plants: 1_000, owners: 1 },
  { plants: 100_000, owners: 1 },
  { plants: 10_000_000, owners: 1 },
  { plants: 100_000, owners: 1_000 },
  { plants: 100_000, owners: 100_000 },
];

export const growthPart: Part = {
  name: 'growth',
  about: 'creates and first pages with growing numbers of plants and owners',
  run: runGrowth,
};

async function runGrowth(bench: Bench): Promise<Report> {
  await using resources = new AsyncDisposableStack();
  process.stderr.write('filling stores …\n');
  const folder = await mkdtemp(join(bench.folder, 'growth-'));
  const started = await startSubjects(sizes.map(storeOf), { folder, signal: bench.signal }, resources);
  const comparisons: Comparison[] = [];
  for (const workload of [listOfTwenty, createBehindAll, createAtRandom]) {
    const contenders = started.map((subject) => httpContender(subject, workload, bench));
    comparisons.push(await compare(`${workload.name}, by size`, contenders, bench.plan));
  }
  return reportOf(comparisons, { createAtTenMillion: slowdownOf(comparisons[1]) });
}

/** Returns the rate of creates at ten million plants relative to the rate at a thousand. */
function slowdownOf(creates: Comparison | undefined): number | undefined {
  const [smallest, , largest] = creates?.contenders ?? [];
  return smallest && largest && ratioOf(largest.runs, smallest.runs)?.median;
}

function storeOf({ plants, owners }: Size): Subject {
  return {
    name: `${whole(plants)} plants, ${whole(owners)} owner${owners === 1 ? '' : 's'}`,
    start: (folder) =>
      startPlantStore({
        folder,
        fill: async (store) => {
          fillStore(join(folder, 'plants.db'), plants, { first: OWNER, count: owners });
          return owners === 1 ? undefined : createTokens(store, owners, join(folder, 'tokens'));
        },
      }),
  };
}

/** Creates a token for each owner, in a file that the requests use in rotation. */
async function createTokens(store: Store, owners: number, file: string): Promise<string> {
  const secrets: string[] = [];
  const numbers = Array.from({ length: owners }, (_, number) => number);
  await manyAtOnce(numbers, async (number) => {
    secrets.push(await createToken(store, number === 0 ? OWNER : `${OWNER}${number}`));
  });
  await writeFile(file, secrets.join('\n'));
  return file;
}
