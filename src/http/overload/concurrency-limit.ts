import { ApiError, ShareExceeded } from '../../api-errors.ts';
import { RETRY_SOON } from '../error-response.ts';
import type { RequestHook } from '../operation.ts';
import type { WaitForLoopBudget } from './loop-budget.ts';

/**
 * Share of each limit (requests in flight, memory of bodies, send buffers) that one owner may use. The rest stays
 * free for other owners.
 */
export const OWNER_SHARE = 0.75;

/** Limits the concurrent requests that use the store. Requests that only wait for their client do not count. */
export interface ConcurrencyLimit {
  /**
   * Runs `work` within the limits. Rejects immediately with an ApiError (50301) if the total limit or the limit of the
   * group (an owner or a network) is reached.
   */
  run<T>(group: string, work: () => Promise<T>): Promise<T>;
  /** Rejects a request early in the pipeline, at little cost, if the total limit is reached. */
  readonly rejectWhenFull: RequestHook;
}

/** The requests of one group that are in flight. */
interface Share {
  readonly group: string;
  inFlight: number;
}

/** Returns how many of `limit` requests in flight one owner may have: always less than all, unless `limit` is 1. */
export function slotsOfOwner(limit: number): number {
  return Math.max(1, Math.floor(limit * OWNER_SHARE));
}

/** Creates a limit of `limit` requests in flight. */
export function createConcurrencyLimit(
  limit: number,
  waitForLoopBudget: WaitForLoopBudget,
): ConcurrencyLimit {
  const limitOfGroup = slotsOfOwner(limit);
  // All rejections share these two errors. A new error with a stack trace would cost more than the rest of
  // the response.
  const full = new ApiError(50301, 'too many requests are in flight; retry later', RETRY_SOON);
  const fullForGroup = new ShareExceeded(
    'too many requests of this owner or address are in flight; retry later',
    RETRY_SOON,
  );
  const shares = new Map<string, Share>();
  let inFlight = 0;

  async function run<T>(group: string, work: () => Promise<T>): Promise<T> {
    if (inFlight >= limit) throw full;
    const share = takeShare(group);
    inFlight += 1;
    try {
      const slot = waitForLoopBudget(group);
      if (slot !== undefined) await slot;
      return await work();
    } finally {
      inFlight -= 1;
      releaseShare(share);
    }
  }

  function takeShare(group: string): Share {
    let share = shares.get(group);
    if (share === undefined) {
      share = { group, inFlight: 0 };
      shares.set(group, share);
    }
    if (share.inFlight >= limitOfGroup) throw fullForGroup;
    share.inFlight += 1;
    return share;
  }

  function releaseShare(share: Share): void {
    share.inFlight -= 1;
    // Keeps the entry of a group without requests, unless the map has more than `limit` entries. Deleting
    // and adding an entry for each request would make the Map reallocate its table repeatedly.
    if (share.inFlight === 0 && shares.size > limit) shares.delete(share.group);
  }

  return {
    run,
    rejectWhenFull: (_request, _reply, done) => {
      if (inFlight >= limit) throw full;
      done();
    },
  };
}
