import { ratioTo } from '../figures.ts';
import { compareSubjects, type Part, reportOf } from '../part.ts';
import { bareNode } from '../subjects/bare-node.ts';
import { oneCommitARequest, plantStore } from '../subjects/plant-store.ts';
import { deleteInOrder } from '../workload.ts';

export const deletePart: Part = {
  name: 'delete',
  about: 'deletes beside the bare handler and a commit a request',
  run: async (bench) => {
    const comparison = await compareSubjects(bench, [plantStore, bareNode, oneCommitARequest], deleteInOrder);
    return reportOf([comparison], { deleteToBare: ratioTo(comparison, bareNode.name) });
  },
};
