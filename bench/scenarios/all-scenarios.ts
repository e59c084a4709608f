import { cpuPart } from './cpu.ts';
import { createPart } from './create.ts';
import { deletePart } from './delete.ts';
import { growthPart } from './growth.ts';
import { latencyPart } from './latency.ts';
import { listPart } from './list.ts';
import { memoryPart } from './memory.ts';
import { postgresPart } from './postgres.ts';
import type { Part } from './scenario.ts';
import { startPart } from './start.ts';
import { wholeListPart } from './whole-list.ts';

/** All parts of the benchmark, in the order of measurement. */
export const parts: readonly Part[] = [
  cpuPart,
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
