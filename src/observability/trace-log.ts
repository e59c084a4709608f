import type { EventLog } from './log-events.ts';
import { REPEAT_MS } from './store-log.ts';

/**
 * Returns a function that logs problems with the collector of traces: the first at once, then one a minute, with the
 * number of spans lost since the last line.
 */
export function logTraces(
  log: EventLog,
  now: () => number = () => performance.now(),
): (problem: string, spansLost: number) => void {
  let spans = 0;
  let loggedAt = Number.NEGATIVE_INFINITY;
  return (problem, spansLost) => {
    spans += spansLost;
    if (now() - loggedAt < REPEAT_MS) return;
    log.event('traces could not be sent; check the OpenTelemetry collector', { problem, spans });
    spans = 0;
    loggedAt = now();
  };
}
