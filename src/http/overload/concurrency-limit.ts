import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import { ApiError } from '../../api-errors.ts';
import { RETRY_SOON } from '../error-response.ts';
import type { WaitForSlot } from './loop-budget.ts';

/** How much of what is allowed at once one owner may take, so that others always find a place. */
const OWNER_SHARE = 0.75;

/** A limit on the work that is asked of the store at once. What waits for its client, to send or to read, is not counted. */
export interface Admission {
  /**
   * Runs some work, or rejects with an ApiError (50301) at once when as much as is allowed is in flight, for all or for the
   * owner, if the work is for one.
   */
  run<T>(owner: string | undefined, work: () => Promise<T>): Promise<T>;
  /** A hook that rejects before anything is done for the request, so that an overload costs a fraction of what it saves. */
  rejectWhenFull(request: FastifyRequest, reply: FastifyReply, done: HookHandlerDoneFunction): void;
}

export function createAdmission(limit: number, waitForSlot: WaitForSlot): Admission {
  const limitOfOwner = Math.ceil(limit * OWNER_SHARE);
  // One for all, since a stack for each would cost more than the rest of the response.
  const full = new ApiError(50301, 'too many requests are in flight already', RETRY_SOON);
  const fullForOwner = new ApiError(
    50301,
    'too many requests of this owner are in flight already',
    RETRY_SOON,
  );
  const inFlightOf = new Map<string, number>();
  let inFlight = 0;

  async function run<T>(owner: string | undefined, work: () => Promise<T>): Promise<T> {
    if (inFlight >= limit) throw full;
    if (owner !== undefined) takeShare(owner);
    inFlight += 1;
    try {
      const turn = waitForSlot();
      if (turn !== undefined) await turn;
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
    // To delete and add an entry for each request would rebuild the table again and again.
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
