/**
 * Runs `work` on the first SIGINT, SIGTERM or SIGHUP instead of ending the process. A second signal ends it.
 * Returns a function that removes the handlers.
 */
export function onSignal(work: (signal: NodeJS.Signals) => void): () => void {
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  const handle = (signal: NodeJS.Signals): void => {
    stopListening();
    work(signal);
  };
  const stopListening = (): void => {
    for (const signal of signals) process.off(signal, handle);
  };
  for (const signal of signals) process.on(signal, handle);
  return stopListening;
}
