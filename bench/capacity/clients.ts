import { randomPause } from '../../client/src/retry.ts';
import type { Clock } from './clock.ts';
import type { Kind, Plan, Request, Status } from './model.ts';

/** The results that the clients recorded after the warm-up. */
export interface Seen {
  /** Number of requests by the status of their last attempt. */
  readonly ended: Readonly<Record<Status, number>>;
  readonly retries: number;
  /**
   * Seconds from the first attempt to the response, for each request that succeeded. Includes pauses between
   * attempts.
   */
  readonly seconds: readonly number[];
}

interface Ask {
  readonly kind: Kind;
  readonly owner: number;
  readonly since: number;
  readonly attempt: number;
  /** Number of the client connection, which selects the instance. */
  readonly lane: number;
  readonly then: () => void;
}

/** Starts the clients. For each attempt of a request, they call `send` with the number of the connection. */
export function startClients(
  clock: Clock,
  plan: Plan,
  random: () => number,
  send: (lane: number, request: Request) => void,
): Seen {
  const pickOwner = zipf(plan.owners, plan.skew, random);
  const seen = {
    ended: { ok: 0, limited: 0, overloaded: 0, unavailable: 0, lost: 0 },
    retries: 0,
    seconds: [] as number[],
  };

  function newRequest(lane: number, then: () => void): void {
    const kind = random() < plan.creates ? 'create' : 'list';
    attempt({ kind, owner: pickOwner(), since: clock.now, attempt: 0, lane, then });
  }

  function attempt(ask: Ask): void {
    const settle = (status: Status, retryAfter: number): void => {
      if (status !== 'ok' && ask.attempt < plan.retries) {
        const next = ask.attempt + 1;
        if (clock.now > plan.warmUp) seen.retries += 1;
        const pause = retryAfter + randomPause(next, random()) / 1_000;
        clock.after(pause, () => attempt({ ...ask, attempt: next }));
        return;
      }
      if (clock.now > plan.warmUp) {
        seen.ended[status] += 1;
        if (status === 'ok') seen.seconds.push(clock.now - ask.since);
      }
      ask.then();
    };
    send(ask.lane, { kind: ask.kind, owner: ask.owner, settle });
  }

  if ('connections' in plan.load) {
    for (let lane = 0; lane < plan.load.connections; lane += 1) {
      const again = (): void => newRequest(lane, again);
      again();
    }
  } else {
    const { perSecond } = plan.load;
    let lane = 0;
    const arrive = (): void => {
      lane += 1;
      newRequest(lane, () => undefined);
      clock.after(exponential(random) / perSecond, arrive);
    };
    clock.after(exponential(random) / perSecond, arrive);
  }
  return seen;
}

/**
 * Returns an exponentially distributed random number with mean 1, such as the time between two independent
 * arrivals.
 */
export function exponential(random: () => number): number {
  return -Math.log(1 - random());
}

/** Returns a function that picks owner `n` with a probability proportional to (n + 1) ** -skew. */
export function zipf(owners: number, skew: number, random: () => number): () => number {
  const sums = new Float64Array(owners);
  let sum = 0;
  for (let owner = 0; owner < owners; owner += 1) {
    sum += (owner + 1) ** -skew;
    sums[owner] = sum;
  }
  return () => {
    const sought = random() * sum;
    let [low, high] = [0, owners - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((sums[middle] ?? sum) > sought) high = middle;
      else low = middle + 1;
    }
    return low;
  };
}
