import { setImmediate } from 'node:timers/promises';

interface SharedRead<Key, Result> {
  readonly keys: Key[];
  /** The results in the order of `keys`. */
  readonly results: Promise<readonly (Result | undefined)[]>;
}

/**
 * Returns a function that reads the result for a key. Calls of one event-loop iteration share a call of
 * `readAll`, up to `max` of them: with many clients, a query for each costs more than the rest of a request.
 * `readAll` resolves to the results in the order of the keys, with undefined where there is none. If it rejects,
 * all calls that share it reject.
 */
export function shareReads<Key, Result>(
  max: number,
  readAll: (keys: readonly Key[]) => Promise<readonly (Result | undefined)[]>,
): (key: Key) => Promise<Result | undefined> {
  let open: SharedRead<Key, Result> | undefined;

  function begin(): SharedRead<Key, Result> {
    const keys: Key[] = [];
    return { keys, results: readAtEndOfIteration(keys) };
  }

  async function readAtEndOfIteration(keys: readonly Key[]): Promise<readonly (Result | undefined)[]> {
    await setImmediate();
    if (open?.keys === keys) open = undefined;
    return readAll(keys);
  }

  return async (key) => {
    if (open === undefined || open.keys.length === max) open = begin();
    const place = open.keys.push(key) - 1;
    return (await open.results)[place];
  };
}
