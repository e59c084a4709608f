import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { Ids, RequestTemplate } from '../workload.ts';

/** Connections that ask all the time: each sends its next request when it has the answer to the one before. */
export interface Job {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** A file of tokens, one a line, that the requests take turns to show. */
  readonly secretsFile: string | undefined;
  readonly requests: readonly RequestTemplate[];
  readonly ids: Ids;
  readonly connections: number;
  readonly seconds: number;
}

/** What a generator prints on a line of its output, as JSON. */
export interface Tally {
  /** Answers received, of whatever status. */
  readonly answers: number;
  readonly seconds: number;
  readonly p50Ms: number | undefined;
  readonly p99Ms: number | undefined;
  /** Answers with a status of 400 or more, broken connections and timeouts; 1 at least when no answer came. */
  readonly failures: number;
  /** CPU seconds of the generator from its first request to the last answer, where it tells them: without its own start. */
  readonly cpuSeconds?: number;
}

/** A program that makes load; it runs as a process of its own. */
export interface Generator {
  readonly name: string;
  /** How many cores it can keep busy. */
  readonly threads: number;
  /** The program and its arguments for a job. */
  readonly command: (job: Job) => Command;
}

type Command = readonly [program: string, ...args: string[]];

/** Puts a job on a server and resolves to what came of it. */
export function runLoad(generator: Generator, job: Job, signal: AbortSignal): Promise<Tally> {
  return runForTally(generator.command(job), signal);
}

/** Runs a program that prints a tally. */
export async function runForTally([program, ...args]: Command, signal: AbortSignal): Promise<Tally> {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'], signal });
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
  const tally = /^\{.*\}$/m.exec(output)?.[0];
  if (code !== 0 || tally === undefined) throw new Error(`${program} failed (${code}):\n${output}`);
  return parseTally(tally);
}

function parseTally(json: string): Tally {
  const tally: Tally = JSON.parse(json);
  // A server that hangs breaks no connection within a short run.
  return tally.answers > 0 ? tally : { ...tally, failures: Math.max(1, tally.failures) };
}
