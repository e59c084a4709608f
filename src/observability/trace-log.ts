import type { EventLog } from './log-events.ts';
import { REPEAT_MS } from './store-log.ts';

interface TraceLog {
  /** Logs a problem at once, or at the end of a minute that began with a logged one. */
  report(problem: string, spansLost: number): void;
  /** Logs at once what waits for the end of the minute. */
  close(): void;
}

/**
 * Logs problems with the collector of traces: the first at once, then one a minute, with the number of spans lost since
 * the last line.
 */
export function logTraces(log: EventLog): TraceLog {
  let latest: string | undefined;
  let spans = 0;
  let minute: NodeJS.Timeout | undefined;

  function logLatest(): void {
    clearTimeout(minute);
    minute = undefined;
    if (latest === undefined) return;
    log.event('traces could not be sent; check the OpenTelemetry collector', { problem: latest, spans });
    latest = undefined;
    spans = 0;
    minute = setTimeout(logLatest, REPEAT_MS).unref();
  }

  return {
    report: (problem, spansLost) => {
      latest = problem;
      spans += spansLost;
      if (minute === undefined) logLatest();
    },
    close: logLatest,
  };
}
