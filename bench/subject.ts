import type { Ids, Workload } from './workloads.ts';

/** Something that answers the requests of the service, in a process of its own, to be measured beside others. */
export interface Subject {
  readonly name: string;
  /** Starts it on a free port of loopback; `folder` is its own and goes away after the run. */
  start(folder: string): Promise<RunningSubject>;
}

export interface RunningSubject {
  readonly url: string;
  readonly pid: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Makes ready what so many seconds of a workload need: deletes need plants with their ids. */
  prepare(workload: Workload, ids: Ids, seconds: number): Promise<void>;
  close(): Promise<void>;
}
