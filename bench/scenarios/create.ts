import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { compare } from '../compare.ts';
import { jsonServer, platformaticDb, pocketBase } from '../contenders/alternatives.ts';
import { bareNode } from '../contenders/baselines.ts';
import type { Contender } from '../contenders/contender.ts';
import { httpContender } from '../contenders/http-contender.ts';
import { oneCommitARequest, plantStore } from '../contenders/plant-store.ts';
import { startSubjects } from '../contenders/subject.ts';
import { runForLoadResult } from '../load/generator.ts';
import { perCpuRatioTo, ratioTo } from '../report/figures.ts';
import { createAtRandom, createInOrder, createWithKey } from '../workload.ts';
import { type Bench, compareSubjects, type Part, type Report, reportOf } from './scenario.ts';

const INSERTS = join(import.meta.dirname, '../load/sqlite-inserts-process.ts');

export const createPart: Part = {
  name: 'create',
  about:
    'creates, compared with the bare handler, one commit per request, SQLite in process, and the alternatives',
  run: runCreate,
};

async function runCreate(bench: Bench): Promise<Report> {
  const inOrder = await compareInOrder(bench);
  const atRandom = await compareSubjects(bench, [plantStore, bareNode], createAtRandom);
  const withKey = await compareSubjects(bench, [plantStore, bareNode], createWithKey);
  return reportOf([inOrder, atRandom, withKey], {
    createToEcho: ratioTo(inOrder, bareNode.name),
    createToPlatformatic: ratioTo(inOrder, platformaticDb.name),
    createToJsonServer: ratioTo(inOrder, jsonServer.name),
    createPerCpuToPocketBase: perCpuRatioTo(inOrder, pocketBase.name),
  });
}

async function compareInOrder(bench: Bench) {
  await using resources = new AsyncDisposableStack();
  const folder = await mkdtemp(join(bench.folder, 'create-'));
  const started = await startSubjects(
    [plantStore, bareNode, oneCommitARequest, ...bench.alternatives],
    { folder, signal: bench.signal },
    resources,
  );
  const contenders = started.map((subject) => httpContender(subject, createInOrder, bench));
  return await compare(
    createInOrder.name,
    [...contenders, batchedInserts(join(folder, 'inserts.db'), bench)],
    bench.plan,
  );
}

function batchedInserts(file: string, { signal }: Bench): Contender {
  return {
    name: 'SQLite in process, 64 per commit',
    measure: async (run, seconds) => {
      const result = await runForLoadResult(
        [process.execPath, INSERTS, file, String(run), String(seconds)],
        signal,
      );
      return { ...result, cpu: undefined, peakBytes: undefined, usage: undefined };
    },
  };
}
