import { type DestinationStream, type Logger, pino } from 'pino';
import type { PrettyOptions, PrettyStream } from 'pino-pretty';
import { messageOf } from './errors.ts';

/** Lines leave together, since a write to stdout for each would cost a sixth of a request. */
const GATHERED = 8_192;
const FLUSH_EVERY_MS = 100;

/** How much waits for a log that cannot be written, in bytes. */
const MOST_HELD = 1_048_576;

/** What the log says of a request when it has its answer. */
export interface AnsweredRequest {
  readonly requestId: string;
  readonly traceId: string | undefined;
  readonly operation: string;
  readonly status: number;
  /** From its arrival to the end of its answer. */
  readonly ms: number;
  readonly owner: string | undefined;
}

export interface ServiceLog {
  readonly log: Logger;
  /** Writes the line of a request. */
  answered(request: AnsweredRequest): void;
}

/** A log of JSON lines on stdout, or of readable ones when stdout is a terminal. */
export async function createLog(level: string): Promise<ServiceLog> {
  return logTo(await standardOutput(), level);
}

/** A log of JSON lines. */
export function logTo(destination: DestinationStream, level: string): ServiceLog {
  const timestamp = createTimestamps();
  const log = pino({ level, base: null, timestamp }, destination);
  if (!log.isLevelEnabled('info')) return { log, answered: () => undefined };
  const begin = `{"level":${log.levels.values.info}`;
  return {
    log,
    // In place of `log.info`, whose general way to a line takes a tenth of a request.
    answered: ({ requestId, traceId, operation, status, ms, owner }) => {
      const trace = traceId === undefined ? '' : `,"traceId":"${traceId}"`;
      const whose = owner === undefined ? '' : `,"owner":${JSON.stringify(owner)}`;
      destination.write(
        `${begin}${timestamp()},"requestId":"${requestId}"${trace},"operation":"${operation}","status":${status},"ms":${ms}${whose},"msg":"answered"}\n`,
      );
    },
  };
}

async function standardOutput(): Promise<DestinationStream> {
  if (process.stdout.isTTY) return prettyStream({ ignore: 'requestId' });
  return gather(openDestination(process.stdout.fd));
}

/** A full disk under the log ends nothing: stderr says so once, and what waits is written when there is room again. */
function openDestination(fd: number): DestinationStream {
  const destination = pino.destination({ fd, sync: true, maxLength: MOST_HELD });
  let fails = false;
  destination.on('error', (error) => {
    if (fails) return;
    fails = true;
    process.stderr.write(
      `plant-store: the log cannot be written: ${messageOf(error)}; up to 1 MiB of its lines waits until it can\n`,
    );
  });
  destination.on('write', () => {
    fails = false;
  });
  return destination;
}

/** As pino flushes: for `log.flush()`, and before a line that may be the last. */
interface Flushable {
  flush(done: () => void): void;
  flushSync(): void;
}

/** Not by the destination's own `minLength`, which measures all that it has gathered anew with every line. */
function gather(destination: DestinationStream): DestinationStream & Flushable {
  let gathered = '';
  function flushSync(): void {
    if (gathered === '') return;
    const text = gathered;
    gathered = '';
    destination.write(text);
  }
  setInterval(flushSync, FLUSH_EVERY_MS).unref();
  process.once('exit', flushSync);
  return {
    flushSync,
    flush: (done) => {
      flushSync();
      done();
    },
    write: (text) => {
      gathered += text;
      if (gathered.length >= GATHERED) flushSync();
    },
  };
}

/** A log for what a command did, on stderr, since stdout has its result; none on a terminal, where words say it. */
export function createCommandLog(level: string): Logger {
  const { fd, isTTY } = process.stderr;
  return logTo(openDestination(fd), isTTY ? 'silent' : level).log;
}

// Imported when needed, so that it costs nothing where there is no terminal.
async function prettyStream(options: PrettyOptions): Promise<PrettyStream> {
  const { default: pretty } = await import('pino-pretty');
  return pretty({ sync: true, ...options });
}

/** ISO 8601 in milliseconds, written once for all lines of the same one. */
function createTimestamps(): () => string {
  let at = 0;
  let text = '';
  return () => {
    const now = Date.now();
    if (now !== at) {
      at = now;
      text = `,"time":"${new Date(now).toISOString()}"`;
    }
    return text;
  };
}
