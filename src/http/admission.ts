import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import { Refusal } from '../errors.ts';
import { RETRY_SOON } from './refusals.ts';
import type { WaitForTurn } from './turns.ts';

/** A bound on the work that is asked of the store at once. What waits for its client, to send or to read, is not counted. */
export interface Admission {
  /** Carries out some work, or rejects with a Refusal (50301) at once when as much as is allowed is under way. */
  run<T>(work: () => Promise<T>): Promise<T>;
  /** A hook that refuses before anything is done for the request, so that a refusal costs a fraction of what it saves. */
  refuseWhenFull(request: FastifyRequest, reply: FastifyReply, done: HookHandlerDoneFunction): void;
}

export function createAdmission(atOnce: number, waitForTurn: WaitForTurn): Admission {
  // One for all, since a stack for each would cost more than the rest of the refusal.
  const full = new Refusal(50301, 'too many requests are under way already', RETRY_SOON);
  let underWay = 0;
  const release = (): void => {
    underWay -= 1;
  };
  return {
    run: (work) => {
      if (underWay >= atOnce) return Promise.reject(full);
      underWay += 1;
      const result = waitForTurn()?.then(work) ?? work();
      result.then(release, release);
      return result;
    },
    refuseWhenFull: (_request, _reply, done) => {
      if (underWay >= atOnce) throw full;
      done();
    },
  };
}
