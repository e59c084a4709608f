import { LRUCache } from 'lru-cache';
import { ApiError } from '../../api-errors.ts';
import { ownerOf, type RequestHook } from '../operation.ts';
import { networkOf } from './client-address.ts';

export const WINDOW_MS = 60_000;

/** Max entries of each cache. The least recently used entries are evicted. */
const MAX_ENTRIES = 10_000;

/** Returns milliseconds of a monotonic clock, so that changes of the wall clock do not affect rate limits. */
type Clock = () => number;

/** Counts events for each key in windows of a minute. The first event of a key starts its window. */
function createRate(limit: number, monotonicNow: Clock) {
  const counts = new LRUCache<string, { count: number }>({
    max: MAX_ENTRIES,
    ttl: WINDOW_MS,
    perf: { now: monotonicNow },
    // Reads the clock at each use. By default, lru-cache reuses a reading of the clock for 1 ms.
    ttlResolution: 0,
  });
  /** True if the key has reached the limit in its window. */
  function hasReached(key: string): boolean {
    const known = counts.get(key);
    return known !== undefined && known.count >= limit;
  }

  return {
    /** Counts an event. Returns the number of events of the key in its window, including this one. */
    count: (key: string): number => {
      const known = counts.get(key);
      if (known === undefined) counts.set(key, { count: 1 });
      else known.count += 1;
      return known?.count ?? 1;
    },
    hasReached,
    /** Throws an ApiError (42900) if the key has reached the limit in its window. */
    rejectBeyond: (key: string, what: string): void => {
      if (!hasReached(key)) return;
      const seconds = Math.max(1, Math.ceil(counts.getRemainingTTL(key) / 1_000));
      throw new ApiError(42900, `${what}; retry in ${seconds} s`, { 'retry-after': String(seconds) });
    },
  };
}

/** Limits invalid tokens, since each of them costs a lookup in the store. Tokens are known by their digests. */
export interface RejectedTokens {
  /**
   * True if this token was invalid so often for the address that it needs no further lookup in this minute. Never true for a
   * token that was accepted at its last lookup.
   */
  isKnownInvalid(address: string, digest: string): boolean;
  /**
   * Throws an ApiError (42900) if the address sent too many different invalid tokens. Call this method before
   * looking up a token. Never throws for a token that was accepted at its last lookup. Otherwise, invalid
   * tokens of one client could block other clients at the same address.
   */
  rejectBeyond(address: string, digest: string): void;
  rejected(address: string, digest: string): void;
  /**
   * Counts a token whose lookup failed, as in an overload. It counts once for its address and never for the
   * token, which may be valid. Ignores a token that was accepted at its last lookup.
   */
  undecided(address: string, digest: string): void;
  accepted(digest: string, owner: string): void;
  /** Returns the owner of a token that was accepted at its last lookup, and undefined for any other token. */
  acceptedOwner(digest: string): string | undefined;
}

/**
 * Limits, for each address and minute, the different invalid tokens and the lookups of each invalid token. A
 * client that repeats one revoked token reaches only the second limit. Other clients at its address can still
 * send requests. All addresses of an IPv6 /64 network count as one address. A `limit` of 0 means no limit.
 */
export function createRejectedTokens(limit: number, monotonicNow: Clock): RejectedTokens {
  const max = limit === 0 ? Number.POSITIVE_INFINITY : limit;
  const ofAddress = createRate(max, monotonicNow);
  const ofToken = createRate(max, monotonicNow);
  /** Owners of accepted tokens, by digest. */
  const accepted = new LRUCache<string, string>({ max: MAX_ENTRIES });
  return {
    isKnownInvalid: (address, digest) =>
      !accepted.has(digest) && ofToken.hasReached(`${networkOf(address)} ${digest}`),
    rejectBeyond: (address, digest) => {
      if (accepted.has(digest)) return;
      ofAddress.rejectBeyond(
        networkOf(address),
        'too many tokens from this address were invalid, or could not be checked',
      );
    },
    rejected: (address, digest) => {
      const network = networkOf(address);
      accepted.delete(digest);
      if (ofToken.count(`${network} ${digest}`) === 1) ofAddress.count(network);
    },
    undecided: (address, digest) => {
      if (accepted.has(digest)) return;
      const network = networkOf(address);
      if (ofToken.count(`undecided ${network} ${digest}`) === 1) ofAddress.count(network);
    },
    accepted: (digest, owner) => accepted.set(digest, owner),
    acceptedOwner: (digest) => accepted.get(digest),
  };
}

/**
 * Returns a hook that limits the requests per minute of each token. The hook runs after authentication.
 * Requests with a JWT are counted per owner. Otherwise, each new JWT would start a new count.
 */
export function limitRequests(limit: number, monotonicNow: Clock): RequestHook {
  const rate = createRate(limit, monotonicNow);
  return (request, _reply, done) => {
    const key = request.caller?.id ?? ownerOf(request);
    const whose = request.caller?.id === undefined ? 'the owner of this token' : 'this token';
    rate.rejectBeyond(key, `${whose} has reached the limit of ${limit} requests a minute`);
    rate.count(key);
    done();
  };
}
