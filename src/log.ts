import { type Logger, pino } from 'pino';
import pretty from 'pino-pretty';

/** Lines leave together, since a write to stdout for each would cost a sixth of a request. */
const GATHERED_BYTES = 8_192;
const FLUSH_EVERY_MS = 100;

/** A log of JSON lines on stdout, or of readable ones when stdout is a terminal. */
export function createLog(level: string): Logger {
  const options = { level, base: null, timestamp: createTimestamps() };
  if (process.stdout.isTTY) return pino(options, pretty({ sync: true, ignore: 'requestId' }));
  const destination = pino.destination({
    fd: process.stdout.fd,
    sync: true,
    minLength: GATHERED_BYTES,
    periodicFlush: FLUSH_EVERY_MS,
  });
  process.once('exit', () => destination.flushSync());
  return pino(options, destination);
}

/** A log for what a command did, on stderr, since stdout has its result. */
export function createCommandLog(level: string): Logger {
  const options = { level, base: null, timestamp: createTimestamps() };
  const { fd, isTTY } = process.stderr;
  if (isTTY) return pino(options, pretty({ sync: true, destination: fd, singleLine: true }));
  return pino(options, pino.destination({ fd, sync: true }));
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
