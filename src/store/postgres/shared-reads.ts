import { codeOf } from '../../thrown-errors.ts';
import { StatementRejected, StoreDamaged, StoreUnavailable } from '../store.ts';

/**
 * Milliseconds for which nothing is shared, after the server rejected a shared statement or timed it out. A row
 * may be damaged or slow to read, or the server may not support the statement.
 */
export const PAUSE_MS = 60_000;

const QUERY_CANCELED = '57014';

interface SharedReadsOptions<Key, Result> {
  /** Max keys in one call of `readAll`. */
  readonly max: number;
  /** Max parallel calls of `readAll` among which keys that arrive together are divided; more if `max` requires it. */
  readonly parallel: number;
  /** Resolves to the results in the order of the keys, with undefined where there is none. */
  readonly readAll: (keys: readonly Key[]) => Promise<readonly (Result | undefined)[]>;
  /** Returns the time of a monotonic clock, in milliseconds; `performance.now` by default. */
  readonly monotonicNow?: () => number;
}

interface Waiting<Key, Result> {
  readonly key: Key;
  readonly resolve: (result: Result | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Returns a function that reads the result for a key. Calls of two event-loop iterations share calls of `readAll`:
 * with many clients, a statement for each costs more than the rest of a request. If the server rejects a shared
 * statement, reads each key alone, so that a row that cannot be read concerns its own readers only.
 */
export function shareReads<Key, Result>({
  max,
  parallel,
  readAll,
  monotonicNow = () => performance.now(),
}: SharedReadsOptions<Key, Result>): (key: Key) => Promise<Result | undefined> {
  let waiting: Waiting<Key, Result>[] = [];
  let sharingFrom = 0;

  function readWaiting(): void {
    const all = waiting;
    waiting = [];
    const size = monotonicNow() < sharingFrom ? 1 : Math.min(max, Math.ceil(all.length / parallel));
    for (let first = 0; first < all.length; first += size) void readGroup(all.slice(first, first + size));
  }

  async function readGroup(group: readonly Waiting<Key, Result>[]): Promise<void> {
    try {
      const results = await readAll(group.map(({ key }) => key));
      for (const [place, { resolve }] of group.entries()) resolve(results[place]);
    } catch (error: unknown) {
      const isShared = group.length > 1;
      if (isShared && (isRejection(error) || isTimeout(error))) sharingFrom = monotonicNow() + PAUSE_MS;
      if (isShared && isRejection(error)) for (const one of group) void readGroup([one]);
      else for (const { reject } of group) reject(error);
    }
  }

  return (key) =>
    new Promise((resolve, reject) => {
      // In the second iteration, clients that just got a response send their next request.
      if (waiting.length === 0) setImmediate(setImmediate, readWaiting);
      waiting.push({ key, resolve, reject });
    });
}

/** True if the server rejected the statement for its content, or for a row. A lost connection is no rejection. */
function isRejection(error: unknown): boolean {
  return error instanceof StatementRejected || error instanceof StoreDamaged;
}

function isTimeout(error: unknown): boolean {
  return error instanceof StoreUnavailable && codeOf(error.cause) === QUERY_CANCELED;
}
