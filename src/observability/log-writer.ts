import { writeSync } from 'node:fs';
import { codeOf, messageOf } from '../api-errors.ts';

const FLUSH_EVERY_MS = 100;
const REPORT_EVERY_MS = 1_000;

/** Limit of what waits for a log that cannot be written, in characters. */
const MAX_HELD = 1_048_576;

/** The same for each kind of line: clients can cause any number of the first two, which leave room for the next. */
const LIMITS = { request: MAX_HELD / 2, failedRequest: (MAX_HELD * 3) / 4, other: MAX_HELD };

/** What a line is about: a request, the failure of one (warn and above), or anything else, such as an audit event. */
export type LineKind = keyof typeof LIMITS;

/** How long the end of the process waits for a reader that is slow. */
const LAST_MS = 250;
const LAST_STEP_MS = 5;

const NOTHING = Buffer.alloc(0);

/** Where a log goes. */
export interface LogDestination {
  write(line: string, kind: LineKind): void;
  /** As pino flushes: for `log.flush()`, and before a line that may be the last. */
  flush?(done: () => void): void;
  flushSync?(): void;
}

interface LogWriterOptions {
  /** Characters that are gathered for one write. */
  readonly gathers: number;
  /** Called with the number of lines that were dropped since the last call, once lines can be written again. */
  readonly onDropped: (lines: number) => void;
}

interface LogWriter extends LogDestination {
  /** Lines dropped so far. */
  dropped(): number;
}

/**
 * Writes a log to a file, pipe or socket and never waits for its reader: what does not fit into a pipe is held, up to a limit,
 * and tried again. The same holds for any other error, such as a full disk, of which stderr says so once.
 */
export function createLogWriter(fd: 1 | 2, { gathers, onDropped }: LogWriterOptions): LogWriter {
  makeNonBlocking(fd);
  let gathered = '';
  /** Of what was gathered before, the bytes that are still to be written. */
  let rest = NOTHING;
  let flushAt = gathers;
  let failing = false;
  let dropped = 0;
  let reported = 0;

  /** Writes what can be written now; returns whether that was all. */
  function writeHeld(): boolean {
    try {
      while (rest.length > 0 || gathered !== '') {
        if (rest.length === 0) {
          rest = Buffer.from(gathered);
          gathered = '';
        }
        rest = rest.subarray(writeSync(fd, rest));
        failing = false;
      }
      flushAt = gathers;
      return true;
    } catch (error: unknown) {
      // Not with each line: an exception costs more than a line.
      flushAt = gathered.length + Math.max(gathers, 1);
      if (codeOf(error) !== 'EAGAIN') reportFailure(error);
      return false;
    }
  }

  function reportFailure(error: unknown): void {
    if (failing) return;
    failing = true;
    process.stderr.write(
      `plant-store: the log cannot be written: ${messageOf(error)}; up to 1 MiB of its lines waits until it can\n`,
    );
  }

  function write(line: string, kind: LineKind): void {
    if (rest.length + gathered.length > LIMITS[kind]) {
      dropped += 1;
      return;
    }
    gathered += line;
    if (gathered.length >= flushAt) writeHeld();
  }

  function writeLast(): void {
    const deadline = performance.now() + LAST_MS;
    const wait = new Int32Array(new SharedArrayBuffer(4));
    while (!writeHeld() && !failing && performance.now() < deadline) Atomics.wait(wait, 0, 0, LAST_STEP_MS);
  }

  setInterval(writeHeld, FLUSH_EVERY_MS).unref();
  setInterval(() => {
    if (dropped === reported || !writeHeld()) return;
    const lines = dropped - reported;
    reported = dropped;
    onDropped(lines);
  }, REPORT_EVERY_MS).unref();
  process.once('exit', writeLast);
  return {
    write,
    flush: (done) => {
      writeHeld();
      done();
    },
    flushSync: () => void writeHeld(),
    dropped: () => dropped,
  };
}

// Node sets O_NONBLOCK on a pipe or socket when it opens the stream; a write to a file never waits for anyone.
function makeNonBlocking(fd: 1 | 2): void {
  void (fd === 1 ? process.stdout : process.stderr);
}
