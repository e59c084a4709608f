/** Milliseconds between log lines about a problem that is reported again and again. */
export const REPEAT_MS = 60_000;

interface OnceAMinute {
  /** Logs the first report immediately. Further reports of that minute share one line at its end. */
  report(problem: string, count: number): void;
  /** Logs immediately what waits for the end of the minute. */
  close(): void;
}

/**
 * Limits log lines about a problem: the first immediately, then one a minute, with the latest text and the sum of the counts
 * since the last line.
 */
export function onceAMinute(writeLine: (problem: string, sum: number) => void): OnceAMinute {
  let latest: string | undefined;
  let sum = 0;
  let minute: NodeJS.Timeout | undefined;

  function writeLatest(): void {
    clearTimeout(minute);
    minute = undefined;
    if (latest === undefined) return;
    writeLine(latest, sum);
    latest = undefined;
    sum = 0;
    minute = setTimeout(writeLatest, REPEAT_MS).unref();
  }

  return {
    report: (problem, count) => {
      latest = problem;
      sum += count;
      if (minute === undefined) writeLatest();
    },
    close: writeLatest,
  };
}
