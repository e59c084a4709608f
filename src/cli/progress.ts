import { clearLine, cursorTo } from 'node:readline';
import { Presets, SingleBar } from 'cli-progress';
import { writeMessage } from './message.ts';

export interface Progress {
  /** How much is done in all: the things that are counted, and how far that is towards the total. */
  advance(count: number, value?: number): void;
  /** Writes a line to standard error, above the bar if there is one. */
  note(line: string): void;
  /** Takes the bar away. */
  stop(): void;
}

const REDRAWN_MS = 100;

/**
 * Shows how far a command is, how fast, and how long it will take, on standard error if that is a terminal.
 * Without a total there is no bar and no time left. Nothing has colours. When it is not to be shown, only notes are.
 */
export function startProgress(unit: string, total?: number, isShown = process.stderr.isTTY): Progress {
  const { stderr } = process;
  if (!isShown) {
    return {
      advance: () => undefined,
      note: writeMessage,
      stop: () => undefined,
    };
  }
  const start = performance.now();
  const counts = `{count} ${unit} | {rate}/s`;
  const bar = new SingleBar(
    {
      stream: stderr,
      format: total === undefined ? counts : `[{bar}] {percentage}% | ${counts} | {eta_formatted} left`,
      etaBuffer: 100,
      clearOnComplete: true,
      forceRedraw: true,
      gracefulExit: false,
    },
    Presets.legacy,
  );
  bar.start(total ?? 0, 0, { count: 0, rate: 0 });
  let drawn = start;

  return {
    advance: (count, value = count) => {
      const now = performance.now();
      if (now - drawn < REDRAWN_MS) return;
      drawn = now;
      const rate = Math.round(count / ((now - start) / 1_000));
      bar.update(value, { count: count.toLocaleString('en'), rate: rate.toLocaleString('en') });
      bar.render();
    },
    note: (line) => {
      cursorTo(stderr, 0);
      clearLine(stderr, 0);
      writeMessage(line);
    },
    stop: () => bar.stop(),
  };
}
