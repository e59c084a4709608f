import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';
import { settings, variableOf } from '../../src/config.ts';

const START_MS = 15_000;
const LOOK_EVERY_MS = 20;
const STOP_MS = 10_000;

export interface ServerProcess {
  readonly url: string;
  readonly pid: number;
  /** Ends it as an operator would, and rejects when it did not end well. */
  stop(): Promise<void>;
}

/** How a server ends when it is told to: well, by itself, or by the signal. */
type Ending = 'exit' | 'signal';

const ours = new Set([...settings.map(variableOf), 'NODE_ENV']);
/** The environment without what sets up our service: it is measured as it is shipped, whatever the shell has. */
const environment = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !ours.has(name) && !name.startsWith('OTEL_')),
);

const started = new Set<ChildProcess>();
// Whatever ends this process, an error that nobody foresaw too.
process.once('exit', () => {
  for (const child of started) child.kill('SIGKILL');
});

/** Starts a script under this same Node, out of reach of a Ctrl-C: who started it stops it. */
export function spawnScript(args: readonly string[], stdio: StdioOptions): ChildProcess {
  const child = spawn(process.execPath, args, { stdio, env: environment, detached: true });
  started.add(child);
  child.once('exit', () => started.delete(child));
  return child;
}

/**
 * Starts a script under this same Node and resolves once it has logged a JSON line with its `url`, or answers at the one given.
 * Its log goes to a file, so that nobody spends time on reading it during a measurement.
 */
export async function startServerProcess(
  args: readonly string[],
  logFile: string,
  ending: Ending = 'exit',
  knownUrl?: string,
): Promise<ServerProcess> {
  const log = await open(logFile, 'a');
  const child = spawnScript(args, ['ignore', log.fd, log.fd]);
  await log.close();
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
    if (child.exitCode !== null) throw new Error(`the server ended at once:\n${text}`);
    await setTimeout(LOOK_EVERY_MS);
  }
  throw new Error(`the server did not answer within ${START_MS} ms; see ${logFile}`);
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
      `the server ended with ${child.exitCode ?? child.signalCode}; it last said:\n${lines.at(-1)}`,
    );
  }
}
