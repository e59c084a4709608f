import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { Ids, RequestTemplate } from '../workload.ts';

/** Connections under constant load: each sends its next request after the response to the previous one. */
export interface Job {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** A file of tokens, one a line, that the requests use in rotation. */
  readonly secretsFile: string | undefined;
  readonly requests: readonly RequestTemplate[];
  readonly ids: Ids;
  readonly connections: number;
  readonly seconds: number;
}

/** The results, which a generator prints as a JSON line. */
export interface Tally {
  /** Responses received, of any status. */
  readonly answers: number;
  readonly seconds: number;
  readonly p50Ms: number | undefined;
  readonly p99Ms: number | undefined;
  /** Responses with a status of 400 or more, broken connections and timeouts; at least 1 when no response arrived. */
  readonly failures: number;
  /**
   * CPU seconds of the generator from its first request to the last response, without its start; undefined if it does
   * not report them.
   */
  readonly cpuSeconds?: number;
}

/** A load generator; it runs as a separate process. */
export interface Generator {
  readonly name: string;
  /** The number of cores that it can use. */
  readonly threads: number;
  /** Returns the program and its arguments for a job. */
  readonly command: (job: Job) => Command;
}

type Command = readonly [program: string, ...args: string[]];

/** Runs a job against a server. Resolves to the result. */
export function runLoad(generator: Generator, job: Job, signal: AbortSignal): Promise<Tally> {
  return runForTally(generator.command(job), signal);
}

/** Runs a program that prints a JSON line with its results. */
export async function runForTally([program, ...args]: Command, signal: AbortSignal): Promise<Tally> {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'], signal });
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
  const tally = /^\{.*\}$/m.exec(output)?.[0];
  if (code !== 0 || tally === undefined) throw new Error(`${program} failed (${code}):\n${output}`);
  return parseTally(tally);
}

function parseTally(json: string): Tally {
  const tally: Tally = JSON.parse(json);
  // Counts a run without any response as failed. The generator reports no failure if the server hangs: the connections
  // stay open.
  return tally.answers > 0 ? tally : { ...tally, failures: Math.max(1, tally.failures) };
}
