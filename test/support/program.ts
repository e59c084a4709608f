import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PATIENCE_MS } from './patience.ts';
import { type CommandOptions, type Ended, runCommand } from './run-command.ts';
import { LOAD_STRIPPED } from './stripped-types.js';

/** An object with the cleanup hook of a test, such as a TestContext. */
export interface Lifetime {
  after(work: () => Promise<void>): void;
}

/** A parsed line of the log. */
export type LogLine = Readonly<Record<string, unknown>>;

/**
 * True for a warning about the setup of the tests: folders for temporary files are in memory on some machines, or in a container, and the shared
 * PostgreSQL server has no fsync.
 */
export function isOfTestSetup({ msg }: LogLine): boolean {
  return /^(?:the SQLite file is on (?:a file system in memory|an overlay file system)|PostgreSQL may lose writes)/.test(
    String(msg),
  );
}

/** A running process of the program `plant-store`. */
export interface Program {
  readonly pid: number;
  /** Output of the process so far. */
  readonly output: { readonly stdout: string; readonly stderr: string };
  /** Log lines of the process so far. */
  readonly log: readonly LogLine[];
  /** Resolves after the process has exited and all its output has been read. */
  readonly ended: Promise<Ended>;
  /**
   * Calls `find` with the output whenever more of it arrives. Resolves to the first result that is not
   * undefined. Rejects when the process exits first.
   */
  wrote<T>(find: () => T | undefined): Promise<T>;
  /** Resolves to the first matching log line. Rejects when the process exits without one. */
  logged(fits: (line: LogLine) => boolean): Promise<LogLine>;
  kill(signal: NodeJS.Signals): void;
  /** Kills the process and its children, which would otherwise keep the output pipes open. */
  killAll(): void;
}

/** A process that runs the service. */
export interface Service extends Program {
  readonly url: string;
  readonly adminUrl: string;
  /** Sends SIGTERM and resolves after the exit. */
  stop(signal?: 'SIGTERM' | 'SIGINT'): Promise<Ended>;
}

export interface ProgramOptions {
  /**
   * Environment variables in addition to `DATABASE_URL`. Only variables that locate programs and folders are
   * inherited.
   */
  readonly env?: Readonly<Record<string, string>>;
  /**
   * Adds a prefix to the command. The prefix must replace itself with the program (`exec`), so that `pid` is
   * the process id of the program.
   */
  readonly wrap?: (command: readonly string[]) => readonly string[];
  /** Selects the log lines to keep; all by default. If set, other output on stdout is not kept. */
  readonly remembers?: (line: LogLine) => boolean;
}

interface ServeOptions extends ProgramOptions {
  /** Flags in addition to the flags for the ports. All ports are random free ports. */
  readonly flags?: readonly string[];
}

/** A folder with a store, in which tests run commands and programs. */
export interface Installation {
  readonly folder: string;
  /** Database file of the store. */
  readonly file: string;
  readonly databaseUrl: string;
  start(args: readonly string[], options?: ProgramOptions): Program;
  /** Runs a command in the test process. */
  run(args: readonly string[], options?: CommandOptions): Promise<Ended>;
  /** Runs a command in a separate process until it exits. */
  runProcess(args: readonly string[], options?: ProgramOptions): Promise<Ended>;
  /** Starts the service. Resolves when it accepts requests; otherwise rejects with its output. */
  serve(options?: ServeOptions): Promise<Service>;
  /** Creates a token with the command `token create`. */
  token(owner?: string, ...flags: string[]): Promise<string>;
}

const MAIN = fileURLToPath(new URL('../../bin/plant-store.js', import.meta.url));

/**
 * Number of tests to run at once. A test mostly waits for a process to start, which uses one core. Two tests
 * thus use both cores of a small machine.
 */
export const TOGETHER = { concurrency: 2 };

/**
 * Environment variables that all started programs inherit: the cache of compiled code, and the folders for
 * coverage and of modules without types.
 */
const OF_RUN = ['NODE_COMPILE_CACHE', 'NODE_DISABLE_COMPILE_CACHE', 'NODE_V8_COVERAGE', 'STRIPPED_TYPES'];

const inherited = {
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => OF_RUN.includes(name))),
  ...(process.env.STRIPPED_TYPES !== undefined && { NODE_OPTIONS: LOAD_STRIPPED }),
};
const living = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of living) killGroup(child);
});

/** Creates an empty folder without a store. The folder is removed after every program in it has exited. */
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

  function run(args: readonly string[], options: CommandOptions = {}): Promise<Ended> {
    return runCommand(args, folder, { ...options, env: { DATABASE_URL: databaseUrl, ...options.env } });
  }

  async function runProcess(args: readonly string[], options?: ProgramOptions): Promise<Ended> {
    return endOf(start(args, options));
  }

  async function serve({ flags = [], ...options }: ServeOptions = {}): Promise<Service> {
    const program = start(['serve', '--port', '0', '--admin-port', '0', ...flags], options);
    const line = await program.logged(({ msg }) => msg === 'serving');
    return toService(program, String(line.url), String(line.adminUrl));
  }

  async function token(owner = 'alice', ...flags: string[]): Promise<string> {
    const { code, stdout, stderr } = await run(['token', 'create', owner, ...flags]);
    if (code !== 0) throw new Error(`no token was created: ${stderr}`);
    return stdout.trim();
  }

  return { folder, file, databaseUrl, start, run, runProcess, serve, token };
}

/** Resolves when a program has exited. Kills it and rejects when it does not exit in time. */
export function endOf(program: Program): Promise<Ended> {
  return inTime(program.ended, program, 'end');
}

/** Asserts that a command failed cleanly: exit code 1, and a readable message only on stderr. */
export function assertFails({ code, signal, stdout, stderr }: Ended, message: RegExp): void {
  assert.deepEqual({ code, signal, stdout }, { code: 1, signal: null, stdout: '' }, stderr);
  assert.match(stderr, message);
  assert.doesNotMatch(stderr, /^ +at /m, 'the message contains a stack trace');
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
  const env = { ...inherited, PATH: process.env.PATH, HOME: cwd, TMPDIR: tmpdir() };
  const child = spawn(name, args, {
    cwd,
    env: { ...env, ...variables },
    stdio: ['ignore', 'pipe', 'pipe'],
    // Starts the program in a process group, so that `killAll` reaches its children.
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
  if (child.pid === undefined) throw new Error(`${name} cannot be started on this machine`);

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
      reject(new Error(`exited (${code ?? signal}) before the expected output\n${stdout}\n${stderr}`));
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
    // The process group has already exited.
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
