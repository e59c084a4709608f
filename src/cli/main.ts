import { fstatSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { Writable } from 'node:stream';
import { CommandFailed } from './command-errors.ts';
import type { Output } from './context.ts';
import { runProgram } from './program.ts';
import { keepNextTickFast } from './v8-tuning.ts';

const STDOUT = 1;
const STDERR = 2;

/** Runs the command in the arguments of this process and sets the exit code. */
export async function main(): Promise<void> {
  keepNextTickFast();
  if (process.pid === 1) endBySignals();
  let stdout: Output | undefined;
  let stderr: Output | undefined;
  process.exitCode = await runProgram(process.argv.slice(2), {
    env: process.env,
    // The standard streams are getters, since Node opens a stream when its property is first read.
    get stdin() {
      return process.stdin;
    },
    get stdout() {
      stdout ??= openOutput(STDOUT, () => process.stdout);
      return stdout;
    },
    get stderr() {
      stderr ??= openStderr();
      return stderr;
    },
    get cwd() {
      return workingDirectory();
    },
    parentPid: () => process.ppid,
    signals: process,
    end,
  });
}

function workingDirectory(): string {
  try {
    return process.cwd();
  } catch (error: unknown) {
    throw new CommandFailed('the working directory was deleted; change to a folder that exists', {
      cause: error,
    });
  }
}

function openStderr(): Output {
  // The log writer and Node use this stream too. Its errors would end the service.
  process.stderr.on('error', () => undefined);
  return openOutput(STDERR, () => process.stderr);
}

/**
 * Opens standard output or standard error. Node's stream for a file ignores a partial write, for example on a full
 * disk: the output would be cut off without an error.
 */
function openOutput(descriptor: number, nodeStream: () => Output): Output {
  if (!fstatSync(descriptor).isFile()) return nodeStream();
  return new Writable({
    write(chunk: Buffer, _encoding, done) {
      try {
        writeFileSync(descriptor, chunk);
        done();
      } catch (error: unknown) {
        done(error instanceof Error ? error : new Error(String(error)));
      }
    },
  });
}

/** Makes a signal without another handler end the process 1, as in a container: there Linux ignores such a signal. */
function endBySignals(): void {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => {
      if (process.listenerCount(signal) === 1) end(signal);
    });
}

function end(how: number | NodeJS.Signals): void {
  if (typeof how === 'number') process.exit(how);
  // A signal that the process 1 sends to itself has no effect.
  if (process.pid === 1) process.exit(128 + constants.signals[how]);
  process.kill(process.pid, how);
}
