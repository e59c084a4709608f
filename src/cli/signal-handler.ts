import { clearLine, cursorTo } from 'node:readline';
import type { CommandContext } from './context.ts';

/**
 * Calls `work` on the first SIGINT, SIGTERM or SIGHUP, after it cleared the terminal line of a progress bar. A second signal
 * ends the process. Returns a function that removes the handlers.
 */
export function onSignal(
  { signals, stderr }: CommandContext,
  work: (signal: NodeJS.Signals) => void,
): () => void {
  const names = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  const handle = (signal: NodeJS.Signals): void => {
    stopListening();
    if (stderr.isTTY === true) {
      cursorTo(stderr, 0);
      clearLine(stderr, 0);
    }
    work(signal);
  };
  const stopListening = (): void => {
    for (const name of names) signals.off(name, handle);
  };
  for (const name of names) signals.on(name, handle);
  return stopListening;
}
