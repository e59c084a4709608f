import { isAbsolute } from 'node:path';
import type { Readable, Writable } from 'node:stream';

/** Standard output or standard error. */
export type Output = Writable & { readonly isTTY?: boolean; readonly columns?: number };

/** The parts of the process that commands use instead of globals, so that tests run commands without a new process. */
export interface CommandContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Output;
  readonly stderr: Output;
  /** The folder in which relative paths begin. */
  readonly cwd: string;
  /** The id of the parent process now. It changes when the parent has ended. */
  readonly parentPid: () => number;
  /** Emits the signals and unexpected errors of the process. Without a listener, they end it. */
  readonly signals: NodeJS.EventEmitter;
  /** Ends the process immediately, with an exit code or by a signal. */
  readonly end: (how: number | NodeJS.Signals) => void;
}

/** The absolute path of a file. Keeps `..` and a slash at the end, which have a meaning for the file system. */
export function absolutePath(context: CommandContext, file: string): string {
  return isAbsolute(file) ? file : `${context.cwd}/${file}`;
}

/** Writes to standard output. Rejects when that fails, for example because the reader closed the pipe. */
export function print({ stdout }: CommandContext, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stdout.write(text, (error) => (error ? reject(error) : resolve()));
  });
}
