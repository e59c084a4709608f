import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import type { Ids, Workload } from '../workload.ts';
import type { Usage } from './server-process.ts';

/** A plant server in a separate process, to be measured against others. */
export interface Subject {
  readonly name: string;
  /**
   * Starts the server on a free loopback port. Only this server uses `folder`, which is deleted after the
   * run.
   */
  start(folder: string): Promise<RunningSubject>;
}

export interface RunningSubject {
  readonly url: string;
  readonly pid: number;
  /**
   * Resolves to the CPU time and allocations since the last call; undefined if the server does not use Node.
   */
  usage(): Promise<Usage | undefined>;
  readonly headers: Readonly<Record<string, string>>;
  /**
   * A file with one token per line, which the requests use in rotation. Undefined if all use the token in
   * `headers`.
   */
  readonly secretsFile?: string | undefined;
  /** Returns the target (path and query) of a request in the form that this server expects. */
  targetOf(target: string): string;
  /** Creates enough plants for a workload that deletes for `seconds` seconds. */
  prepare(workload: Workload, ids: Ids, seconds: number): Promise<void>;
  close(): Promise<void>;
}

/** Starts servers, each with a separate folder. They stop when `resources` is disposed. */
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
