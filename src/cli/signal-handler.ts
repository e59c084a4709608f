import type { CommandContext } from './context.ts';

/**
 * Calls `work` on the first SIGINT, SIGTERM or SIGHUP. A second signal ends the process. Returns a function
 * that removes the handlers.
 */
export function onSignal({ signals }: CommandContext, work: (signal: NodeJS.Signals) => void): () => void {
  const names = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  const handle = (signal: NodeJS.Signals): void => {
    stopListening();
    work(signal);
  };
  const stopListening = (): void => {
    for (const name of names) signals.off(name, handle);
  };
  for (const name of names) signals.on(name, handle);
  return stopListening;
}
