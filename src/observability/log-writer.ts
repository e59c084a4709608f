import { closeSync, constants, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import { codeOf, messageOf } from '../thrown-errors.ts';

const STDOUT = 1;
const FLUSH_EVERY_MS = 100;
const REPORT_EVERY_MS = 1_000;

/** Max characters of buffered lines while the log cannot be written. */
const MAX_BUFFERED = 1_048_576;

/**
 * Buffer limits in characters, by kind of line. Clients can cause any number of request lines. Lower limits
 * for request lines leave room for all other lines.
 */
export const BUFFER_LIMITS = {
  request: MAX_BUFFERED / 2,
  failedRequest: (MAX_BUFFERED * 3) / 4,
  other: MAX_BUFFERED,
};

/**
 * Kind of a log line: `request`, `failedRequest` (level warn or above) or `other` (for example an audit
 * event).
 */
export type LineKind = keyof typeof BUFFER_LIMITS;

/** Milliseconds that an exiting process waits for the reader of the log: while it reads nothing, and in total. */
export const EXIT_FLUSH_MS = { idle: 250, total: 2_000 };
const LAST_STEP_MS = 5;

const NOTHING = Buffer.alloc(0);

/** Destination of log lines. */
export interface LogDestination {
  write(line: string, kind: LineKind): void;
  /** Starts to write the buffered lines. */
  flush?(): void;
}

interface LogWriterOptions {
  readonly isTerminal: boolean;
  /** Number of buffered characters at which a write starts. */
  readonly minWrite: number;
  /** Called when lines can be written again, and by `reportDropped`. `lines` is the number dropped since the last call. */
  readonly onDropped: (lines: number) => void;
}

interface LogWriter extends LogDestination {
  /** Returns the number of lines dropped so far. */
  dropped(): number;
  /** Calls `onDropped` immediately, if lines were dropped since its last call. */
  reportDropped(): void;
}

/**
 * Writes the log to standard output without ever blocking; a terminal may block on other systems than Linux.
 * Buffers lines that cannot be written, up to a limit, and retries. Reports errors such as a full disk once, on
 * stderr.
 */
export function createLogWriter({ isTerminal, minWrite, onDropped }: LogWriterOptions): LogWriter {
  const output = openOutput(isTerminal);
  let buffered = endsWithinLine() ? '\n' : '';
  /** The unwritten bytes of the last write. */
  let rest = NOTHING;
  let flushAt = minWrite;
  let failing = false;
  let dropped = 0;
  let reported = 0;

  /** Writes the buffered lines. Returns true if the buffer is then empty. */
  function writeBuffered(): boolean {
    try {
      while (rest.length > 0 || buffered !== '') {
        if (rest.length === 0) {
          rest = Buffer.from(buffered);
          buffered = '';
        }
        rest = rest.subarray(writeSync(output, rest));
        failing = false;
      }
      flushAt = minWrite;
      return true;
    } catch (error: unknown) {
      // After a failed write, new lines start the next write only when `minWrite` more characters are
      // buffered. A failed write for every line would take too much time.
      flushAt = buffered.length + Math.max(minWrite, 1);
      if (codeOf(error) !== 'EAGAIN') reportFailure(error);
      return false;
    }
  }

  function reportFailure(error: unknown): void {
    if (failing) return;
    failing = true;
    process.stderr.write(
      codeOf(error) === 'EPIPE'
        ? 'plant-store: the log cannot be written: the program that read it has ended; restart the service with it\n'
        : `plant-store: the log cannot be written: ${messageOf(error)}; up to 1 MiB of lines is buffered and retried\n`,
    );
  }

  function write(line: string, kind: LineKind): void {
    if (rest.length + buffered.length > BUFFER_LIMITS[kind]) {
      dropped += 1;
      return;
    }
    buffered += line;
    if (buffered.length >= flushAt) writeBuffered();
  }

  function reportDropped(): void {
    if (dropped === reported) return;
    const lines = dropped - reported;
    reported = dropped;
    onDropped(lines);
  }

  function writeLast(): void {
    const wait = new Int32Array(new SharedArrayBuffer(4));
    const end = performance.now() + EXIT_FLUSH_MS.total;
    let idleEnd = end;
    let leftBefore = Number.POSITIVE_INFINITY;
    while (!writeBuffered() && !failing) {
      const now = performance.now();
      const left = rest.length + buffered.length;
      if (left < leftBefore) idleEnd = now + EXIT_FLUSH_MS.idle;
      leftBefore = left;
      if (now >= Math.min(idleEnd, end)) return;
      Atomics.wait(wait, 0, 0, LAST_STEP_MS);
    }
  }

  setInterval(writeBuffered, FLUSH_EVERY_MS).unref();
  setInterval(() => {
    if (dropped !== reported && writeBuffered()) reportDropped();
  }, REPORT_EVERY_MS).unref();
  process.once('exit', writeLast);
  return {
    write,
    flush: () => void writeBuffered(),
    dropped: () => dropped,
    reportDropped,
  };
}

/**
 * True if standard output is a file that ends within a line, as after the end of a process on a full disk. False if it
 * cannot be read, as on other systems than Linux.
 */
function endsWithinLine(): boolean {
  const output = fstatSync(STDOUT);
  if (!output.isFile() || output.size === 0) return false;
  try {
    const file = openSync('/proc/self/fd/1', 'r');
    try {
      const last = Buffer.alloc(1);
      return readSync(file, last, 0, 1, output.size - 1) === 1 && last.toString() !== '\n';
    } finally {
      closeSync(file);
    }
  } catch {
    return false;
  }
}

/** Returns a file descriptor of standard output whose writes do not wait for a reader. */
function openOutput(isTerminal: boolean): number {
  // Opens `process.stdout`: Node then sets O_NONBLOCK on a pipe or socket. A file does not need the flag.
  void process.stdout;
  return isTerminal ? openTerminal() : STDOUT;
}

// Opens the terminal again: the descriptor of standard output shares its flags with the shell. Only Linux has
// this path.
function openTerminal(): number {
  try {
    return openSync('/proc/self/fd/1', constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch {
    return STDOUT;
  }
}
