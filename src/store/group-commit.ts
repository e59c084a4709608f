import { BatchRefused, type Outcome, StoreOverloaded, StoreUnavailable, type Write } from '../store.ts';

interface Waiting {
  readonly write: Write;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
}

export interface GroupCommitOptions {
  readonly commit: (batch: readonly Write[]) => Promise<readonly Outcome[]>;
  /** Writes in one batch, at most. */
  readonly maxBatch: number;
  /** Batches under way at once; 1 keeps writes in the order of their arrival. */
  readonly maxInFlight: number;
  /** Writes that may wait for a batch; one more is refused with StoreOverloaded. */
  readonly maxWaiting: number;
}

export interface GroupCommit {
  write(write: Write): Promise<Outcome>;
  /** Refuses further writes and resolves when all that were taken have their outcomes. */
  close(): Promise<void>;
}

/**
 * Gathers writes into batches, so that many share one fsync: while a batch commits, the next one gathers
 * (group commit; Gray and Reuter, Transaction Processing, 1993, §9.4.7).
 */
export function createGroupCommit(options: GroupCommitOptions): GroupCommit {
  const { commit, maxBatch, maxInFlight, maxWaiting } = options;
  let waiting: Waiting[] = [];
  let inFlight = 0;
  let scheduled = false;
  let closed = false;
  const idle = Promise.withResolvers<void>();

  function write(write: Write): Promise<Outcome> {
    if (closed) return Promise.reject(new StoreUnavailable('the store is closing'));
    if (waiting.length >= maxWaiting)
      return Promise.reject(new StoreOverloaded(`${maxWaiting} writes wait already`));
    return new Promise((resolve, reject) => {
      waiting.push({ write, resolve, reject });
      schedule();
    });
  }

  // One turn of the event loop later, so that all requests that arrived together go together.
  function schedule(): void {
    if (scheduled || inFlight >= maxInFlight) return;
    scheduled = true;
    setImmediate(() => {
      scheduled = false;
      void launch();
    });
  }

  async function launch(): Promise<void> {
    const batch = waiting.slice(0, maxBatch);
    waiting = waiting.slice(maxBatch);
    inFlight += 1;
    if (waiting.length > 0) schedule();
    await settle(batch);
    inFlight -= 1;
    if (waiting.length > 0) schedule();
    else if (closed && inFlight === 0) idle.resolve();
  }

  async function settle(batch: readonly Waiting[]): Promise<void> {
    try {
      const outcomes = await commit(batch.map((member) => member.write));
      for (const [index, member] of batch.entries()) {
        const outcome = outcomes[index];
        if (outcome === undefined) member.reject(new Error('the engine left a write without an outcome'));
        else member.resolve(outcome);
      }
    } catch (error: unknown) {
      if (error instanceof BatchRefused && batch.length > 1) {
        for (const member of batch) await settle([member]);
      } else {
        for (const member of batch) member.reject(error);
      }
    }
  }

  function close(): Promise<void> {
    closed = true;
    if (waiting.length === 0 && inFlight === 0) idle.resolve();
    return idle.promise;
  }

  return { write, close };
}
