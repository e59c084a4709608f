import { isAbsolute } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { OperatorError } from '../thrown-errors.ts';

/** Standard output or standard error. */
export type Output = Writable & { readonly isTTY?: boolean; readonly columns?: number };

/**
 * The parts of the process that commands use instead of globals, so that tests run commands without a new
 * process.
 */
export interface CommandContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: Readable & { readonly isTTY?: boolean; readonly fd?: number | null };
  readonly stdout: Output;
  readonly stderr: Output;
  /** The folder to which relative paths refer. */
  readonly cwd: string;
  /** Returns the id of the parent process. It changes when the parent process ends. */
  readonly parentPid: () => number;
  /**
   * Emits the signals and unexpected errors of the process. A signal or error without a listener ends the
   * process.
   */
  readonly signals: NodeJS.EventEmitter;
  /** Ends the process immediately, with an exit code or by a signal. */
  readonly end: (how: number | NodeJS.Signals) => void;
}

/**
 * Returns the absolute path of a file, without normalizing it. Normalization would change the meaning of a
 * final slash, and of `..` after a symbolic link.
 */
export function absolutePath(context: CommandContext, file: string): string {
  return isAbsolute(file) ? file : `${context.cwd.replace(/\/$/, '')}/${file}`;
}

/**
 * Writes to standard output. Rejects with OutputFailed if the write fails, for example because the reader
 * closed the pipe.
 */
export function print({ stdout }: CommandContext, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stdout.write(text, (error) => (error ? reject(new OutputFailed(error)) : resolve()));
  });
}

/** Error: standard output cannot be written. `cause` is the error of the stream. */
export class OutputFailed extends OperatorError {
  override readonly name = 'OutputFailed';

  constructor(cause: Error) {
    super(`standard output cannot be written: ${cause.message}`, { cause });
  }
}
