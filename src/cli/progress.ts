import { clearLine, cursorTo } from 'node:readline';
import { Presets, SingleBar } from 'cli-progress';
import type { Output } from './context.ts';
import { writeMessage } from './message.ts';

export interface Progress {
  /**
   * Sets the number of processed items. `value` is the position of the progress bar. The position differs
   * from the number of items if the bar counts bytes.
   */
  advance(count: number, value?: number): void;
  /** Writes a line to standard error, above the progress bar. */
  note(line: string): void;
  stop(): void;
}

const REDRAW_MS = 100;

/** Terminal columns for the text next to the progress bar: enough for a count of a million plants. */
const TEXT_COLUMNS = 50;
const MIN_BAR_COLUMNS = 10;
const MAX_BAR_COLUMNS = 40;

/** Saves the cursor position, to which cli-progress returns at its end to clear the bar. */
const SAVE_CURSOR = '\u001b7';

/**
 * Shows count, rate and remaining time on standard error, without colours. Shows no bar and no remaining time
 * if `total` is unknown. If standard error is not a terminal, or `isHidden` is true, writes only the lines of `note`.
 */
export function startProgress(stderr: Output, unit: string, total?: number, isHidden = false): Progress {
  if (isHidden || stderr.isTTY !== true) {
    return {
      advance: () => undefined,
      note: (line) => writeMessage(stderr, line),
      stop: () => undefined,
    };
  }
  const start = performance.now();
  const counts = `{count} ${unit} | {rate}/s`;
  const barColumns = Math.min(MAX_BAR_COLUMNS, (stderr.columns ?? 80) - TEXT_COLUMNS);
  const drawn = barColumns < MIN_BAR_COLUMNS ? '' : '[{bar}] ';
  const bar = new SingleBar(
    {
      stream: stderr,
      format: total === undefined ? counts : `${drawn}{percentage}% | ${counts} | {eta_formatted} left`,
      barsize: Math.max(MIN_BAR_COLUMNS, barColumns),
      etaBuffer: 100,
      clearOnComplete: true,
      forceRedraw: true,
      gracefulExit: false,
      // If a signal ended the process, the terminal would stay without line wrap.
      linewrap: true,
    },
    Presets.legacy,
  );
  bar.start(total ?? 0, 0, { count: 0, rate: 0 });
  let drawnAt = start;

  return {
    advance: (count, value = count) => {
      const now = performance.now();
      if (now - drawnAt < REDRAW_MS) return;
      drawnAt = now;
      const rate = Math.round(count / ((now - start) / 1_000));
      bar.update(value, { count: count.toLocaleString('en'), rate: rate.toLocaleString('en') });
      bar.render();
    },
    note: (line) => {
      cursorTo(stderr, 0);
      clearLine(stderr, 0);
      writeMessage(stderr, line);
      stderr.write(SAVE_CURSOR);
    },
    stop: () => bar.stop(),
  };
}
