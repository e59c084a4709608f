import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import { ApiError } from '../../api-errors.ts';
import { RETRY_SOON } from '../error-response.ts';
import type { WaitForSlot } from './loop-budget.ts';

/** Share of the concurrency limit that one owner may use. The rest stays free for other owners. */
export const OWNER_SHARE = 0.75;

/** Limits the requests that use the store at once. Requests that only wait for their client do not count. */
export interface Admission {
  /**
   * Runs `work` within the limits. Rejects immediately with an ApiError (50301) if the total limit or the
   * owner's limit is reached. Without an owner, only the total limit applies.
   */
  run<T>(owner: string | undefined, work: () => Promise<T>): Promise<T>;
  /** Rejects a request early in the pipeline, at little cost, if the total limit is reached. */
  rejectWhenFull(request: FastifyRequest, reply: FastifyReply, done: HookHandlerDoneFunction): void;
}

export function createAdmission(limit: number, waitForSlot: WaitForSlot): Admission {
  const limitOfOwner = Math.ceil(limit * OWNER_SHARE);
  // All rejections share these two errors. A new error with a stack trace would cost more than the rest of
  // the response.
  const full = new ApiError(50301, 'too many requests are in flight; retry later', RETRY_SOON);
  const fullForOwner = new ApiError(
    50301,
    'too many requests of this owner are in flight; retry later',
    RETRY_SOON,
  );
  const inFlightOf = new Map<string, number>();
  let inFlight = 0;

  async function run<T>(owner: string | undefined, work: () => Promise<T>): Promise<T> {
    if (inFlight >= limit) throw full;
    if (owner !== undefined) takeShare(owner);
    inFlight += 1;
    try {
      const slot = waitForSlot(owner);
      if (slot !== undefined) await slot;
      return await work();
    } finally {
      inFlight -= 1;
      if (owner !== undefined) releaseShare(owner);
    }
  }

  function takeShare(owner: string): void {
    const ofOwner = inFlightOf.get(owner) ?? 0;
    if (ofOwner >= limitOfOwner) throw fullForOwner;
    inFlightOf.set(owner, ofOwner + 1);
  }

  function releaseShare(owner: string): void {
    const left = (inFlightOf.get(owner) ?? 1) - 1;
    // Keeps the entry of an owner without requests, unless the map has more than `limit` entries. Deleting
    // and adding an entry for each request would make the Map reallocate its table repeatedly.
    if (left === 0 && inFlightOf.size > limit) inFlightOf.delete(owner);
    else inFlightOf.set(owner, left);
  }

  return {
    run,
    rejectWhenFull: (_request, _reply, done) => {
      if (inFlight >= limit) throw full;
      done();
    },
  };
}
