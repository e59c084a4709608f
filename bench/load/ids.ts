import type { Ids } from '../workload.ts';

const FIRST_RANDOM = 2 ** 43;
const LANES = 1024;

/**
 * Returns a function that returns the next id of a run at each call. wrk.lua has the same algorithm for the
 * load generator wrk.
 */
export function createIds(ids: Ids): () => number {
  return ids.order === 'sequential' ? sequential(ids.first) : random(ids.seed, ids.lane);
}

/** Returns the index, modulo the number of tokens, of the token for the first request of a run. */
export function firstSecret(ids: Ids): number {
  return ids.order === 'sequential' ? ids.first : ids.seed;
}

function sequential(first: number): () => number {
  let id = first - 1;
  return () => {
    id += 1;
    return id;
  };
}

/**
 * Returns a function that gives random, distinct ids. It uses Marsaglia's xorshift32, which visits every
 * 32-bit number except 0 once (Xorshift RNGs, 2003). Functions with different `lane` share no id.
 */
function random(seed: number, lane: number): () => number {
  let state = seed;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return FIRST_RANDOM + (state >>> 0) * LANES + lane;
  };
}
