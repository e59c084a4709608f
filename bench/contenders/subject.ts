import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import type { Ids, RequestTemplate, Workload } from '../workload.ts';
import type { Usage } from './server-process.ts';

/** A server for plants in a separate process, to be measured against others. */
export interface Subject {
  readonly name: string;
  /** Starts the server on a free loopback port. Only this subject uses `folder`, which is deleted after the run. */
  start(folder: string): Promise<RunningSubject>;
}

export interface RunningSubject {
  readonly url: string;
  readonly pid: number;
  /** Resolves to what it has used since the last call. */
  usage(): Promise<Usage>;
  readonly headers: Readonly<Record<string, string>>;
  /** A file of tokens, one a line, that the requests use in rotation. Undefined when all use the token in `headers`. */
  readonly secretsFile?: string | undefined;
  /** Adapts the requests of a workload to this subject. */
  requestsOf(workload: Workload): readonly RequestTemplate[];
  /** Prepares the data for this many seconds of a workload: deletes need plants with their ids. */
  prepare(workload: Workload, ids: Ids, seconds: number): Promise<void>;
  close(): Promise<void>;
}

/** Starts subjects, each in a separate folder. `resources` closes them. */
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
