import type { Writable } from 'node:stream';
import { type Logger, pino, symbols } from 'pino';
import type { PrettyOptions, PrettyStream } from 'pino-pretty';
import { type EventLog, logEvents } from './log-events.ts';
import { createLogWriter, type LineKind, type LogDestination } from './log-writer.ts';

/** Characters in one write to the log. A separate write for each line would cost a sixth of the time of a request. */
const MIN_WRITE = 8_192;

/** Levels of pino. */
const INFO = 30;
const WARN = 40;

/** The logged fields of an answered request. */
export interface AnsweredRequest {
  readonly requestId: string;
  readonly traceId: string | undefined;
  readonly operation: string;
  readonly status: number;
  /** Milliseconds from the arrival of the request to the end of its response. */
  readonly ms: number;
  readonly owner: string | undefined;
}

interface Log extends EventLog {
  /** Starts to write the pending lines. */
  flush(): void;
}

export interface ServiceLog {
  readonly log: Log;
  /** Writes the `answered` line of a request. */
  answered(request: AnsweredRequest): void;
  /** Lines dropped so far, because the log was not read or could not be written. */
  readonly linesDropped: () => number;
}

/** Creates a log on stdout: JSON lines, or readable lines on a terminal. */
export async function createLog(level: string): Promise<ServiceLog> {
  if (process.stdout.isTTY) {
    const pretty = await prettyStream({ ignore: 'requestId', singleLine: true });
    return logTo({ write: (line) => void pretty.write(line) }, level);
  }
  const writer = createLogWriter({ minWrite: MIN_WRITE, onDropped: (lines) => reportDropped(lines) });
  const serviceLog = logTo(writer, level);
  const reportDropped = (lines: number): void => {
    serviceLog.log.event('log lines were dropped, since the log was not read or could not be written', {
      lines,
    });
  };
  return { ...serviceLog, linesDropped: writer.dropped };
}

/** Creates a log of JSON lines. */
export function logTo(destination: LogDestination, level: string): ServiceLog {
  const timestamp = createTimestamps();
  const logger = pino({ level, base: null, timestamp }, new KindStream(destination));
  const log = eventLog(logger);
  const linesDropped = (): number => 0;
  if (!logger.isLevelEnabled('info')) return { log, answered: () => undefined, linesDropped };
  const begin = `{"level":${INFO}`;
  return {
    log,
    linesDropped,
    // Formats the line without pino, which takes a tenth of the time of a request.
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

function eventLog(logger: Logger): Log {
  return {
    event: (message, fields: object) => {
      const [level] = logEvents[message];
      logger[level](fields, message);
    },
    flush: () => logger.flush(),
  };
}

/** A stream for pino that adds the kind of each line. Pino sets the level and the fields of the line here. */
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

/**
 * Creates the log of a command. The log goes to stderr, since stdout has the result of the command. On a terminal the
 * log is silent: the user reads a message instead.
 */
export function createCommandLog(level: string, stderr: Writable & { readonly isTTY?: boolean }): EventLog {
  return logTo({ write: (line) => void stderr.write(line) }, stderr.isTTY === true ? 'silent' : level).log;
}

// Imported on demand, so that it costs nothing without a terminal.
async function prettyStream(options: PrettyOptions): Promise<PrettyStream> {
  const { default: pretty } = await import('pino-pretty');
  return pretty({ sync: true, ...options });
}

/** Formats ISO 8601 timestamps, once for each millisecond. */
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
