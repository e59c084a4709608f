import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import type { Ids, RequestTemplate, Workload } from '../workload.ts';

/** Something that answers requests for plants, in a process of its own, to be measured beside others. */
export interface Subject {
  readonly name: string;
  /** Starts it on a free port of loopback; `folder` is its own and goes away after the run. */
  start(folder: string): Promise<RunningSubject>;
}

export interface RunningSubject {
  readonly url: string;
  readonly pid: number;
  readonly headers: Readonly<Record<string, string>>;
  /** A file of tokens, one a line, that the requests take turns to show; undefined where the headers say all. */
  readonly secretsFile?: string | undefined;
  /** The requests of a workload as this subject wants them. */
  requestsOf(workload: Workload): readonly RequestTemplate[];
  /** Makes ready what so many seconds of a workload need: deletes need plants with their ids. */
  prepare(workload: Workload, ids: Ids, seconds: number): Promise<void>;
  close(): Promise<void>;
}

/** Starts subjects, each in a folder of its own, and has `resources` close them. */
export async function startSubjects(
  subjects: readonly Subject[],
  { folder, signal }: { readonly folder: string; readonly signal: AbortSignal },
  resources: AsyncDisposableStack,
): Promise<readonly { readonly name: string; readonly running: RunningSubject }[]> {
  const started = [];
  for (const { name, start } of subjects) {
    signal.throwIfAborted();
    const running = await start(await mkdtemp(join(folder, 'subject-')));
    resources.defer(() => running.close());
    started.push({ name, running });
  }
  return started;
}
