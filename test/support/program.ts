import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** What a test gives to clean up behind it; a TestContext is one. */
export interface Lifetime {
  after(work: () => Promise<void>): void;
}

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A line of the log, parsed. */
export type LogLine = Readonly<Record<string, unknown>>;

/** The program as a process of its own. */
export interface Program {
  readonly pid: number;
  /** What it wrote so far. */
  readonly output: { readonly stdout: string; readonly stderr: string };
  /** The lines of the log so far. */
  readonly log: readonly LogLine[];
  /** Resolves once it ended and all it wrote has been read. */
  readonly ended: Promise<Ended>;
  /** Resolves to what `find` finds in the output, as soon as it does; rejects when the process ends before. */
  wrote<T>(find: () => T | undefined): Promise<T>;
  /** Resolves to the first line of the log that fits; rejects when the process ends without one. */
  logged(fits: (line: LogLine) => boolean): Promise<LogLine>;
  kill(signal: NodeJS.Signals): void;
  /** Ends it and whatever it started, which would otherwise live on and hold its pipes open. */
  killAll(): void;
}

/** The program while it serves. */
export interface Service extends Program {
  readonly url: string;
  readonly adminUrl: string;
  /** Asks it to stop, and resolves once it has. */
  stop(signal?: 'SIGTERM' | 'SIGINT'): Promise<Ended>;
}

export interface ProgramOptions {
  /** Variables beside `DATABASE_URL`; nothing is inherited but what finds programs and folders. */
  readonly env?: Readonly<Record<string, string>>;
  /** Puts another command in front, which must end by becoming the program (`exec`), so that the pid is the program's. */
  readonly wrap?: (command: readonly string[]) => readonly string[];
  /** Which lines of the log to remember; all unless given. Without them all, nothing else on stdout is remembered either. */
  readonly remembers?: (line: LogLine) => boolean;
}

interface ServeOptions extends ProgramOptions {
  /** Flags beside the ports, which are always any free ones. */
  readonly flags?: readonly string[];
}

/** A folder with a store of its own, in which programs run. */
export interface Installation {
  readonly folder: string;
  /** The file of the store. */
  readonly file: string;
  readonly databaseUrl: string;
  start(args: readonly string[], options?: ProgramOptions): Program;
  /** Runs a command to its end. */
  run(args: readonly string[], options?: ProgramOptions): Promise<Ended>;
  /** Resolves once the service accepts requests; rejects with all it wrote when it does not get there. */
  serve(options?: ServeOptions): Promise<Service>;
  /** A token, made by the command. */
  token(owner?: string, ...flags: string[]): Promise<string>;
}

const MAIN = fileURLToPath(new URL('../../bin/plant-store.js', import.meta.url));

/** For a suite: most of a run is the start of the process, on one core; two at a time use both of a small machine. */
export const TOGETHER = { concurrency: 2 };

/** Variables that make the program take its standard error for a terminal. */
export const ON_A_TERMINAL = { NODE_OPTIONS: '--import=data:text/javascript,process.stderr.isTTY=true' };

/** A program that takes longer than this to end or to serve hangs. */
const PATIENCE_MS = 60_000;

// Shared by the many short runs of one test file, which would otherwise spend most of their time compiling.
const compileCache = mkdtempSync(join(tmpdir(), 'plant-store-compiled-'));
const living = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of living) killGroup(child);
  rmSync(compileCache, { recursive: true, force: true });
});

/** A new folder with no store yet; it goes away at the end, after every program in it. */
export async function newInstallation(lifetime: Lifetime): Promise<Installation> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-'));
  const file = join(folder, 'plants.db');
  const databaseUrl = `sqlite:${file}`;
  const programs = new Set<Program>();
  lifetime.after(async () => {
    for (const program of programs) program.killAll();
    await Promise.all([...programs].map(({ ended }) => ended));
    await rm(folder, { recursive: true, force: true });
  });

  function start(args: readonly string[], options: ProgramOptions = {}): Program {
    const { env = {}, wrap = (same) => same, remembers } = options;
    const command = wrap([process.execPath, MAIN, ...args]);
    const program = startProgram(command, folder, { DATABASE_URL: databaseUrl, ...env }, remembers);
    programs.add(program);
    void program.ended.finally(() => programs.delete(program));
    return program;
  }

  async function run(args: readonly string[], options?: ProgramOptions): Promise<Ended> {
    return endOf(start(args, options));
  }

  async function serve({ flags = [], ...options }: ServeOptions = {}): Promise<Service> {
    const program = start(['serve', '--port', '0', '--admin-port', '0', ...flags], options);
    const line = await program.logged(({ msg }) => msg === 'serving');
    return toService(program, String(line.url), String(line.adminUrl));
  }

  async function token(owner = 'alice', ...flags: string[]): Promise<string> {
    const { code, stdout, stderr } = await run(['token', 'create', owner, ...flags]);
    if (code !== 0) throw new Error(`no token was made: ${stderr}`);
    return stdout.trim();
  }

  return { folder, file, databaseUrl, start, run, serve, token };
}

/** Resolves once a program ended by itself; rejects, and kills it, when it does not. */
export function endOf(program: Program): Promise<Ended> {
  return inTime(program.ended, program, 'end');
}

/** Asserts that a command failed as it should: with 1, and a message for people on stderr alone. */
export function assertFails({ code, signal, stdout, stderr }: Ended, message: RegExp): void {
  assert.deepEqual({ code, signal, stdout }, { code: 1, signal: null, stdout: '' }, stderr);
  assert.match(stderr, message);
  assert.doesNotMatch(stderr, /^ +at /m, 'a stack trace is no message');
}

function toService(program: Program, url: string, adminUrl: string): Service {
  const stop = (signal: NodeJS.Signals = 'SIGTERM'): Promise<Ended> => {
    program.kill(signal);
    return inTime(program.ended, program, 'stop');
  };
  return { ...program, url, adminUrl, stop };
}

function startProgram(
  command: readonly string[],
  cwd: string,
  variables: Readonly<Record<string, string>>,
  remembers: ((line: LogLine) => boolean) | undefined,
): Program {
  const [name = '', ...args] = command;
  const env = { PATH: process.env.PATH, HOME: cwd, TMPDIR: tmpdir(), NODE_COMPILE_CACHE: compileCache };
  const child = spawn(name, args, {
    cwd,
    env: { ...env, ...variables },
    stdio: ['ignore', 'pipe', 'pipe'],
    // The first of a group of its own, by which `killAll` finds what it started.
    detached: true,
  });
  const output = { stdout: '', stderr: '' };
  const log: LogLine[] = [];
  const waiting = new Set<() => void>();
  living.add(child);

  let parsedUpTo = 0;
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output.stdout += text;
    const complete = output.stdout.lastIndexOf('\n') + 1;
    const lines = output.stdout.slice(parsedUpTo, complete).split('\n');
    parsedUpTo = complete;
    const parsed = lines
      .filter((line) => line.startsWith('{"level":'))
      .map((line): LogLine => JSON.parse(line));
    log.push(...(remembers === undefined ? parsed : parsed.filter(remembers)));
    if (remembers !== undefined) {
      output.stdout = output.stdout.slice(complete);
      parsedUpTo = 0;
    }
    for (const look of waiting) look();
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output.stderr += text;
  });

  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => {
      living.delete(child);
      resolve({ code, signal, ...output });
    });
  });
  if (child.pid === undefined) throw new Error(`${name} cannot be run here`);

  const program: Program = {
    pid: child.pid,
    output,
    log,
    ended,
    wrote,
    logged: (fits) => wrote(() => log.find(fits)),
    kill: (signal) => void child.kill(signal),
    killAll: () => killGroup(child),
  };

  function wrote<T>(find: () => T | undefined): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const look = (): void => {
      const found = find();
      if (found === undefined) return;
      waiting.delete(look);
      resolve(found);
    };
    waiting.add(look);
    look();
    ended.then(({ code, signal, stdout, stderr }) => {
      reject(new Error(`ended (${code ?? signal}) before it wrote that\n${stdout}\n${stderr}`));
    }, reject);
    return inTime(promise, program, 'write that');
  }

  return program;
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // All of it has ended.
  }
}

async function inTime<T>(result: Promise<T>, program: Program, aim: string): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    program.killAll();
    late.reject(
      new Error(`did not ${aim} in ${PATIENCE_MS} ms\n${program.output.stdout}\n${program.output.stderr}`),
    );
  }, PATIENCE_MS);
  try {
    return await Promise.race([result, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
