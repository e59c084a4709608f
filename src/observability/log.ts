import type { Writable } from 'node:stream';
import { type Logger, pino, stdSerializers, symbols } from 'pino';
import { escapeColouredLines } from '../terminal-text.ts';
import { type EventLog, logEvents } from './log-events.ts';
import { createLogWriter, type LineKind, type LogDestination } from './log-writer.ts';

/**
 * Number of characters collected before one write. A separate write for each line would take a sixth of the
 * time of a request.
 */
const MIN_WRITE = 8_192;

const INFO = 30;
const WARN = 40;

/** Fields of the log line `answered`. */
export interface AnsweredRequest {
  readonly requestId: string;
  readonly traceId: string | undefined;
  readonly operation: string;
  readonly status: number;
  /**
   * Milliseconds to the end of the response, from the end of the request headers, or from the previous response on the
   * connection.
   */
  readonly ms: number;
  readonly owner: string | undefined;
}

interface Log extends EventLog {
  /** Starts to write the buffered lines. */
  flush(): void;
}

export interface ServiceLog {
  readonly log: Log;
  /** Writes the log line `answered` for a request. */
  answered(request: AnsweredRequest): void;
  /** Returns the number of lines dropped because the log was not read or could not be written. */
  readonly linesDropped: () => number;
  /** Logs immediately the dropped lines that no line has yet counted. */
  readonly reportDropped: () => void;
}

/** Creates the log of the service on stdout: JSON lines, or readable lines on a terminal. */
export async function createLog(level: string): Promise<ServiceLog> {
  const isTerminal = process.stdout.isTTY;
  const minWrite = isTerminal ? 1 : MIN_WRITE;
  const writer = createLogWriter({
    isTerminal,
    minWrite,
    onDropped: (lines) =>
      serviceLog.log.event('log lines were dropped: the output is read too slowly, or cannot be written', {
        lines,
      }),
  });
  const serviceLog = logTo(isTerminal ? await prettyPrinted(writer) : writer, level);
  return { ...serviceLog, linesDropped: writer.dropped, reportDropped: writer.reportDropped };
}

/** Creates a log of JSON lines of a level and above. Audit lines have no minimum, but `silent` drops them too. */
export function logTo(destination: LogDestination, level: string): Pick<ServiceLog, 'log' | 'answered'> {
  const timestamp = createTimestamps();
  const options = { level, base: null, timestamp, serializers: { err: serializeError } };
  const logger = pino(options, new KindStream(destination));
  const log = eventLog(logger);
  if (!logger.isLevelEnabled('info')) return { log, answered: () => undefined };
  const begin = `{"level":${INFO}`;
  return {
    log,
    // Formats the line `answered` without pino, whose formatting would take 10 % of the time of a request.
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

// pino appends the message of the cause, which many messages already have.
function serializeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const serialized = stdSerializers.err(error);
  if (error.cause instanceof Error && error.message.includes(error.cause.message))
    serialized.message = error.message;
  return serialized;
}

function eventLog(logger: Logger): Log {
  const auditLogger = logger.level === 'silent' ? logger : logger.child({}, { level: 'info' });
  return {
    event: (message, fields: object) => {
      const [level] = logEvents[message];
      ('audit' in fields ? auditLogger : logger)[level](fields, message);
    },
    flush: () => logger.flush(),
  };
}

/**
 * Stream for pino that passes on each line with its kind (`LineKind`). Before each write, pino stores the
 * level and the fields of the line in properties of this stream.
 */
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
 * Creates the log of a command, on stderr: stdout is for the result of the command. On a terminal the log is
 * silent, since the command prints messages for the user instead.
 */
export function createCommandLog(stderr: Writable & { readonly isTTY?: boolean }): EventLog {
  return logTo({ write: (line) => void stderr.write(line) }, stderr.isTTY === true ? 'silent' : 'info').log;
}

// Imports pino-pretty on demand: without a terminal, the process never loads it.
async function prettyPrinted(destination: LogDestination): Promise<LogDestination> {
  const { prettyFactory } = await import('pino-pretty');
  const render = prettyFactory({ singleLine: true });
  return {
    ...destination,
    write: (line, kind) => destination.write(escapeColouredLines(render(line)), kind),
  };
}

/** Formats the current time as ISO 8601, only once for each millisecond. */
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
