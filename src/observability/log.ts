import type { Writable } from 'node:stream';
import { pino, stdSerializers } from 'pino';
import type { ApiError, ErrorCode } from '../api-errors.ts';
import { escapeColouredLines } from '../terminal-text.ts';
import { OperatorError } from '../thrown-errors.ts';
import { type EventLog, logEvents } from './log-events.ts';
import { createLogWriter, type LineKind, type LogDestination } from './log-writer.ts';

/**
 * Number of characters collected before one write. A separate write for each line would take a sixth of the
 * time of a request.
 */
const MIN_WRITE = 8_192;

const INFO = 30;

/** Fields of the log line `answered`. */
export interface AnsweredRequest {
  readonly requestId: string;
  readonly traceId: string | undefined;
  readonly operation: string;
  readonly status: number;
  /** Code of the error, if the response is one, or broke off because of one. */
  readonly error: ErrorCode | undefined;
  readonly limit: ApiError['limit'];
  /**
   * Milliseconds to the end of the response, from the end of the request headers, or from the previous response on the
   * connection.
   */
  readonly ms: number;
  /** True for a replay of an earlier creation. */
  readonly replayed: true | undefined;
  readonly owner: string | undefined;
  /** Id of the token; undefined for one of the identity provider. */
  readonly token: string | undefined;
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
  const options = { level, base: null, timestamp, serializers: { err: serializeBriefly } };
  let kind: LineKind = 'other';
  // pino writes each line before its call returns.
  const logger = pino(options, { write: (line) => destination.write(line, kind) });
  const auditLogger = level === 'silent' ? logger : logger.child({}, { level: 'info' });
  const fatalLogger = logger.child({}, { serializers: { err: serializeWithStack } });
  const loggerOf = (lineLevel: LineLevel, fields: object): typeof logger =>
    'audit' in fields ? auditLogger : lineLevel === 'fatal' ? fatalLogger : logger;
  const log: Log = {
    event: (message, fields: object) => {
      const [lineLevel] = logEvents[message];
      kind = kindOf(lineLevel, fields);
      loggerOf(lineLevel, fields)[lineLevel](fields, message);
      if (lineLevel === 'fatal') destination.flush?.();
    },
    flush: () => destination.flush?.(),
  };
  if (!logger.isLevelEnabled('info')) return { log, answered: () => undefined };
  const begin = `{"level":${INFO}`;
  const ownerAsJson = createTextRenderer();
  const tokenAsJson = createTextRenderer();
  return {
    log,
    // Formats the line `answered` without pino, whose formatting would take 10 % of the time of a request.
    answered: ({ requestId, traceId, operation, status, error, limit, ms, replayed, owner, token }) => {
      const trace = traceId === undefined ? '' : `,"traceId":"${traceId}"`;
      const code = error === undefined ? '' : `,"error":${error}`;
      const share = limit === undefined ? '' : `,"limit":"${limit}"`;
      const again = replayed === undefined ? '' : ',"replayed":true';
      const whose = owner === undefined ? '' : `,"owner":${ownerAsJson(owner)}`;
      const by = token === undefined ? '' : `,"token":${tokenAsJson(token)}`;
      destination.write(
        `${begin}${timestamp()},"requestId":"${requestId}"${trace},"operation":"${operation}","status":${status}${code}${share},"ms":${ms}${again}${whose}${by},"msg":"answered"}\n`,
        'request',
      );
    },
  };
}

// The message of an OperatorError names the cause, and a full disk would fill faster with a stack for each request.
function serializeBriefly(error: unknown): unknown {
  return error instanceof OperatorError
    ? { ...serialize(error), stack: undefined }
    : serializeWithStack(error);
}

function serializeWithStack(error: unknown): unknown {
  return error instanceof Error ? serialize(error) : error;
}

// pino appends the message of the cause, which many messages already have.
function serialize(error: Error): ReturnType<typeof stdSerializers.err> {
  const serialized = stdSerializers.err(error);
  if (error.cause instanceof Error && error.message.includes(error.cause.message))
    serialized.message = error.message;
  return serialized;
}

type LineLevel = (typeof logEvents)[keyof typeof logEvents][0];

/** Returns the kind of a line. */
function kindOf(level: LineLevel, fields: object): LineKind {
  if (level === 'debug') return 'request';
  if (!('requestId' in fields) || 'audit' in fields) return 'other';
  return level === 'info' ? 'request' : 'failedRequest';
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
  const render = prettyFactory({ singleLine: true, errorLikeObjectKeys: ['err'] });
  return {
    ...destination,
    write: (line, kind) => destination.write(escapeColouredLines(render(line)), kind),
  };
}

/** Creates a function that renders a text as JSON. It remembers the last one: a caller often sends several requests in a row. */
function createTextRenderer(): (text: string) => string {
  let last = '';
  let json = '""';
  return (text) => {
    if (text !== last) {
      last = text;
      json = JSON.stringify(text);
    }
    return json;
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
