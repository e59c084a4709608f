import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { Ids, RequestTemplate } from '../workload.ts';

/** The load to generate: each connection sends its next request after the response to the previous one. */
export interface Job {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /**
   * A file with one token per line, which the requests use in rotation. `firstSecret` in ids.ts selects the
   * first token.
   */
  readonly secretsFile: string | undefined;
  readonly requests: readonly RequestTemplate[];
  readonly ids: Ids;
  readonly connections: number;
  readonly seconds: number;
}

/** The results of a load generator, printed as a JSON line. */
export interface LoadResult {
  /** Number of responses, of any status. */
  readonly answers: number;
  readonly seconds: number;
  readonly p50Ms: number | undefined;
  readonly p99Ms: number | undefined;
  /** The p99.9 latency; undefined if the generator does not report it. */
  readonly p999Ms?: number | undefined;
  /**
   * Number of failures: responses with a status of 400 or more, broken connections and timeouts. At least 1
   * when no response arrived.
   */
  readonly failures: number;
  /**
   * CPU seconds of the load generator from its first request to the last response. Undefined if the generator
   * does not report them.
   */
  readonly cpuSeconds?: number;
}

/** A load generator, which runs in a separate process. */
export interface Generator {
  readonly name: string;
  /** Number of cores that the load generator can use. */
  readonly threads: number;
  /** Returns the program and arguments that generate a load. */
  readonly command: (job: Job) => Command;
}

type Command = readonly [program: string, ...args: string[]];

/** Runs a load generator against a server. Resolves to the results. */
export function runLoad(generator: Generator, job: Job, signal: AbortSignal): Promise<LoadResult> {
  return runForLoadResult(generator.command(job), signal);
}

/** Runs a program that prints its results as a JSON line. */
export async function runForLoadResult(
  [program, ...args]: Command,
  signal: AbortSignal,
): Promise<LoadResult> {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'], signal });
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
  const result = /^\{.*\}$/m.exec(output)?.[0];
  if (code !== 0 || result === undefined) throw new Error(`${program} failed (${code}):\n${output}`);
  return parseLoadResult(result);
}

function parseLoadResult(json: string): LoadResult {
  const result: LoadResult = JSON.parse(json);
  // Counts a run without any response as failed. The load generator itself reports no failure if a server
  // hangs and keeps its connections open.
  return result.answers > 0 ? result : { ...result, failures: Math.max(1, result.failures) };
}
