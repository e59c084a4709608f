import { type Logger, pino } from 'pino';
import pretty from 'pino-pretty';

/** A log of JSON lines on stdout, or of readable ones when stdout is a terminal. */
export function createLog(level: string): Logger {
  const options = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime };
  if (process.stdout.isTTY) return pino(options, pretty({ sync: true, ignore: 'requestId' }));
  return pino(options, pino.destination({ fd: process.stdout.fd, sync: true }));
}
