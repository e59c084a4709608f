import { pocketBase } from '../contenders/alternatives.ts';
import { bareNode } from '../contenders/baselines.ts';
import { plantStore } from '../contenders/plant-store.ts';
import { perCpuRatioTo, ratioTo } from '../report/figures.ts';
import { listOfTwenty, listUnderWrites } from '../workload.ts';
import { compareSubjects, type Part, reportOf } from './scenario.ts';

export const listPart: Part = {
  name: 'list',
  about: 'lists of 20, without and with concurrent writes',
  run: async (bench) => {
    const unchanged = await compareSubjects(
      bench,
      [plantStore, bareNode, ...bench.alternatives],
      listOfTwenty,
    );
    const changing = await compareSubjects(bench, [plantStore, bareNode], listUnderWrites);
    return reportOf([unchanged, changing], {
      listToConstant: ratioTo(unchanged, bareNode.name),
      listUnderWrites: ratioTo(changing, bareNode.name),
      listPerCpuToPocketBase: perCpuRatioTo(unchanged, pocketBase.name),
    });
  },
};
