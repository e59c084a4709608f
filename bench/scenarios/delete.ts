import { bareNode } from '../contenders/baselines.ts';
import { oneCommitARequest, plantStore } from '../contenders/plant-store.ts';
import { ratioTo } from '../report/figures.ts';
import { deleteInOrder } from '../workload.ts';
import { compareSubjects, type Part, reportOf } from './scenario.ts';

export const deletePart: Part = {
  name: 'delete',
  about: 'deletes, compared with the bare handler and one commit per request',
  run: async (bench) => {
    const comparison = await compareSubjects(bench, [plantStore, bareNode, oneCommitARequest], deleteInOrder);
    return reportOf([comparison], { deleteToBare: ratioTo(comparison, bareNode.name) });
  },
};
