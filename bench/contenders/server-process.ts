import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { variables } from '../../src/cli/settings/environment-variables.ts';

const START_MS = 15_000;
const LOOK_EVERY_MS = 20;
const STOP_MS = 10_000;
const USAGE = join(import.meta.dirname, 'usage-preload.ts');

/** CPU time and allocations of all threads of a server since the last report. */
export interface Usage {
  /** Bytes allocated on the heaps of all threads. */
  readonly allocatedBytes: number;
  /** Mean CPU microseconds per request, for each slice of 1,000 requests. */
  readonly microseconds: readonly number[];
}

export interface ServerProcess {
  readonly url: string;
  readonly pid: number;
  /** Resolves to the server's CPU time and allocations since the last call. */
  usage(): Promise<Usage>;
  /** Sends SIGTERM to the server. Rejects when it does not exit cleanly. */
  stop(): Promise<void>;
}

/** End of a server after SIGTERM: with exit code 0, or killed by the signal. */
type Ending = 'exit' | 'signal';

/**
 * Environment variables for the servers. Leaves out the settings of our service, so that it is measured with
 * its defaults.
 */
const environment = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !variables.includes(name) && !name.startsWith('OTEL_')),
);

const started = new Set<ChildProcess>();
// Kills the child processes even when the benchmark ends by an unexpected error.
process.once('exit', () => {
  for (const child of started) child.kill('SIGKILL');
});

/**
 * Starts a script with this process's Node, in a separate process group, so that Ctrl-C does not reach the
 * script. The caller must stop it.
 */
export function spawnScript(
  args: readonly string[],
  stdio: StdioOptions,
  program = process.execPath,
): ChildProcess {
  const child = spawn(program, args, { stdio, env: environment, detached: true });
  started.add(child);
  child.once('exit', () => started.delete(child));
  return child;
}

/**
 * Starts a server script with the Node of this process. Resolves when the server responds at `knownUrl`, or
 * else at the `url` in its log. The log goes to a file, so that the benchmark spends no time on it during a
 * measurement.
 */
export async function startServerProcess(
  args: readonly string[],
  logFile: string,
  ending: Ending = 'exit',
  knownUrl?: string,
): Promise<ServerProcess> {
  await using log = await open(logFile, 'a');
  const child = spawnScript(['--import', USAGE, ...args], ['ignore', log.fd, log.fd, 'ipc']);
  child.channel?.unref();
  return { ...(await ready(child, logFile, ending, knownUrl)), usage: () => usageOf(child) };
}

/**
 * Starts a server that does not run on Node and ends by SIGTERM. Resolves when the server responds at the `url`
 * in its log.
 */
export async function startForeignServer(
  program: string,
  args: readonly string[],
  logFile: string,
): Promise<Omit<ServerProcess, 'usage'>> {
  await using log = await open(logFile, 'a');
  return await ready(spawnScript(args, ['ignore', log.fd, log.fd], program), logFile, 'signal');
}

async function ready(
  child: ChildProcess,
  logFile: string,
  ending: Ending,
  knownUrl?: string,
): Promise<Omit<ServerProcess, 'usage'>> {
  try {
    const url = await readiness(child, logFile, knownUrl);
    if (child.pid === undefined) throw new Error('the process did not start');
    return { url, pid: child.pid, stop: () => stop(child, logFile, ending) };
  } catch (error: unknown) {
    child.kill('SIGKILL');
    throw error;
  }
}

async function readiness(
  child: ChildProcess,
  logFile: string,
  knownUrl: string | undefined,
): Promise<string> {
  for (const deadline = performance.now() + START_MS; performance.now() < deadline; ) {
    const text = await readFile(logFile, 'utf8');
    const url = knownUrl ?? /"url":"(http:[^"]+)"/.exec(text)?.[1];
    if (url !== undefined && (await answers(url))) return url;
    if (child.exitCode !== null) throw new Error(`the server exited at once:\n${text}`);
    await setTimeout(LOOK_EVERY_MS);
  }
  throw new Error(`the server did not respond within ${START_MS} ms; see ${logFile}`);
}

async function usageOf(child: ChildProcess): Promise<Usage> {
  const reply: Promise<Usage[]> = once(child, 'message');
  child.send('usage');
  const [usage] = await reply;
  if (usage === undefined) throw new Error('the server did not report its usage');
  return usage;
}

async function answers(url: string): Promise<boolean> {
  return fetch(url, { headers: { connection: 'close' } }).then(
    (answer) => answer.arrayBuffer().then(() => true),
    () => false,
  );
}

async function stop(child: ChildProcess, logFile: string, ending: Ending): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) {
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    AbortSignal.timeout(STOP_MS).addEventListener('abort', () => child.kill('SIGKILL'));
    await ended;
  }
  if (child.exitCode !== 0 && !(ending === 'signal' && child.signalCode === 'SIGTERM')) {
    const lines = (await readFile(logFile, 'utf8')).trimEnd().split('\n');
    throw new Error(
      `the server exited with ${child.exitCode ?? child.signalCode}; its last output:\n${lines.at(-1)}`,
    );
  }
}
