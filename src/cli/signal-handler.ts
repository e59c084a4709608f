/**
 * Does some work, once, in place of what a signal that ends a process does; a second signal does that. Returns what undoes
 * this.
 */
export function onSignal(work: (signal: NodeJS.Signals) => void): () => void {
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  const take = (signal: NodeJS.Signals): void => {
    stopListening();
    work(signal);
  };
  const stopListening = (): void => {
    for (const signal of signals) process.off(signal, take);
  };
  for (const signal of signals) process.on(signal, take);
  return stopListening;
}
