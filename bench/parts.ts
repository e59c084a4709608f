import type { Part } from './part.ts';
import { createPart } from './parts/create.ts';
import { deletePart } from './parts/delete.ts';
import { growthPart } from './parts/growth.ts';
import { latencyPart } from './parts/latency.ts';
import { listPart } from './parts/list.ts';
import { memoryPart } from './parts/memory.ts';
import { postgresPart } from './parts/postgres.ts';
import { startPart } from './parts/start.ts';
import { wholeListPart } from './parts/whole-list.ts';

/** All parts, in the order in which they are measured. */
export const parts: readonly Part[] = [
  createPart,
  listPart,
  deletePart,
  postgresPart,
  wholeListPart,
  growthPart,
  latencyPart,
  memoryPart,
  startPart,
];
