import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { Ids } from '../workloads.ts';

/** Connections that ask all the time: each sends its next request when it has the answer to the one before. */
export interface Job {
  readonly url: string;
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly headers: Readonly<Record<string, string>>;
  /** Where `{id}` stands in these two, the next id goes. */
  readonly target: string;
  readonly body: string;
  readonly ids: Ids;
  readonly expectedStatus: number;
  readonly connections: number;
  readonly seconds: number;
}

/** What a generator prints on a line of its output, as JSON. */
export interface Tally {
  /** Answers received, of whatever status. */
  readonly answers: number;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Answers with another status than the expected one, broken connections and timeouts. */
  readonly failures: number;
}

/** A program that makes load; it runs as a process of its own. */
export interface Generator {
  readonly name: string;
  /** The program and its arguments for a job. */
  readonly command: (job: Job) => readonly [program: string, ...args: string[]];
}

/** Puts a job on a server and resolves to what came of it. */
export async function runLoad(generator: Generator, job: Job, signal: AbortSignal): Promise<Tally> {
  const [program, ...args] = generator.command(job);
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'], signal });
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
  const tally = /^\{.*\}$/m.exec(output)?.[0];
  if (code !== 0 || tally === undefined) throw new Error(`${generator.name} failed (${code}):\n${output}`);
  return parseTally(tally);
}

function parseTally(json: string): Tally {
  return JSON.parse(json);
}
