import { type Logger, pino, symbols } from 'pino';
import type { PrettyOptions, PrettyStream } from 'pino-pretty';
import { createLogWriter, type LineKind, type LogDestination } from './log-writer.ts';

/** Lines leave together, since a write to stdout for each would cost a sixth of a request. */
const GATHERED = 8_192;

/** Levels of pino. */
const INFO = 30;
const WARN = 40;

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
  /** Lines that were dropped so far, since the log was not read or could not be written. */
  readonly linesDropped: () => number;
}

/** A log of JSON lines on stdout, or of readable ones when stdout is a terminal. */
export async function createLog(level: string): Promise<ServiceLog> {
  if (process.stdout.isTTY) {
    const pretty = await prettyStream({ ignore: 'requestId' });
    return logTo({ write: (line) => void pretty.write(line) }, level);
  }
  const writer = createLogWriter(1, { gathers: GATHERED, onDropped: (lines) => reportDropped(lines) });
  const serviceLog = logTo(writer, level);
  const reportDropped = (lines: number): void => {
    serviceLog.log.warn({ lines }, 'lines were dropped, since the log was not read or could not be written');
  };
  return { ...serviceLog, linesDropped: writer.dropped };
}

/** A log of JSON lines. */
export function logTo(destination: LogDestination, level: string): ServiceLog {
  const timestamp = createTimestamps();
  const log = pino({ level, base: null, timestamp }, new KindStream(destination));
  const linesDropped = (): number => 0;
  if (!log.isLevelEnabled('info')) return { log, answered: () => undefined, linesDropped };
  const begin = `{"level":${INFO}`;
  return {
    log,
    linesDropped,
    // In place of `log.info`, whose general way to a line takes a tenth of a request.
    answered: ({ requestId, traceId, operation, status, ms, owner }) => {
      const trace = traceId === undefined ? '' : `,"traceId":"${traceId}"`;
      const whose = owner === undefined ? '' : `,"owner":${JSON.stringify(owner)}`;
      destination.write(
        `${begin}${timestamp()},"requestId":"${requestId}"${trace},"operation":"${operation}","status":${status},"ms":${ms}${whose},"msg":"answered"}\n`,
        'request',
      );
    },
  };
}

/** A stream for pino, which leaves level and fields of each line here: adds of what kind the line is. */
class KindStream {
  readonly [symbols.needsMetadataGsym] = true;
  lastLevel = 0;
  lastObj: object = {};
  readonly #destination: LogDestination;

  constructor(destination: LogDestination) {
    this.#destination = destination;
  }

  write(line: string): void {
    this.#destination.write(line, this.#kind());
  }

  flush(done: () => void): void {
    if (this.#destination.flush === undefined) done();
    else this.#destination.flush(done);
  }

  flushSync(): void {
    this.#destination.flushSync?.();
  }

  #kind(): LineKind {
    if (this.lastLevel < INFO) return 'request';
    if (!('requestId' in this.lastObj) || 'audit' in this.lastObj) return 'other';
    return this.lastLevel < WARN ? 'request' : 'failedRequest';
  }
}

/** A log for what a command did, on stderr, since stdout has its result; none on a terminal, where words say it. */
export function createCommandLog(level: string): Logger {
  if (process.stderr.isTTY) return logTo({ write: () => undefined }, 'silent').log;
  return logTo(createLogWriter(2, { gathers: 0, onDropped: () => undefined }), level).log;
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
