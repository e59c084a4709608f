import { EventEmitter } from 'node:events';
import { Readable, Writable } from 'node:stream';
import { runProgram } from '../../src/cli/program.ts';

/** Exit status and output of a command or process. */
export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CommandOptions {
  /** Environment variables of the command, in addition to `DATABASE_URL`. */
  readonly env?: Readonly<Record<string, string>>;
  /** Content of standard input; empty by default. */
  readonly stdin?: Readable;
  /** Standard streams that act as a terminal; none by default. */
  readonly terminals?: readonly ('stdin' | 'stdout' | 'stderr')[];
  /** Width of the terminal in characters; 80 by default. */
  readonly columns?: number;
  /** Source of signals; none come by default. */
  readonly signals?: EventEmitter;
  /** Returns the id of the parent process. */
  readonly parentPid?: () => number;
  /** Called when the command ends the process. */
  readonly onEnd?: (how: number | NodeJS.Signals) => void;
}

/** Runs a command of the program in the test process. */
export async function runCommand(
  args: readonly string[],
  cwd: string,
  {
    env = {},
    stdin = Readable.from([]),
    terminals = [],
    columns = 80,
    signals = new EventEmitter(),
    parentPid = () => process.ppid,
    onEnd,
  }: CommandOptions = {},
): Promise<Ended> {
  const stdout = new Output(terminals.includes('stdout'), columns);
  const stderr = new Output(terminals.includes('stderr'), columns);
  const ended = Promise.withResolvers<Pick<Ended, 'code' | 'signal'>>();
  runProgram(args, {
    env,
    stdin: Object.assign(stdin, { isTTY: terminals.includes('stdin') }),
    stdout,
    stderr,
    cwd,
    parentPid,
    signals,
    end: (how) => {
      onEnd?.(how);
      ended.resolve(typeof how === 'number' ? { code: how, signal: null } : { code: null, signal: how });
    },
  }).then((code) => ended.resolve({ code, signal: null }), ended.reject);
  return { ...(await ended.promise), stdout: stdout.text(), stderr: stderr.text() };
}

/** A stream that keeps all output. */
class Output extends Writable {
  readonly isTTY: boolean;
  readonly columns: number;
  readonly #chunks: Buffer[] = [];

  constructor(isTTY: boolean, columns: number) {
    super();
    this.columns = columns;
    this.isTTY = isTTY;
  }

  override _write(chunk: Buffer, _: BufferEncoding, done: () => void): void {
    this.#chunks.push(chunk);
    done();
  }

  text(): string {
    return Buffer.concat(this.#chunks).toString();
  }
}
