import { hash } from 'node:crypto';
import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import ipaddr from 'ipaddr.js';
import { LRUCache } from 'lru-cache';
import { ApiError } from '../../api-errors.ts';
import { ownerOf } from '../operation.ts';

export const WINDOW_MS = 60_000;

/** Max entries of each cache; the least recently used are evicted. */
const MAX_ENTRIES = 10_000;

/** Milliseconds of a monotonic clock, so that a change of the wall clock neither extends nor ends a window. */
type Clock = () => number;

/** Counts events per key, for a minute from the first of each key. */
function createRate(limit: number, monotonicNow: Clock) {
  const counts = new LRUCache<string, { count: number }>({
    max: MAX_ENTRIES,
    ttl: WINDOW_MS,
    perf: { now: monotonicNow },
  });
  return {
    /** Returns the number of events of the key in its window, this one included. */
    count: (key: string): number => {
      const known = counts.get(key);
      if (known === undefined) counts.set(key, { count: 1 });
      else known.count += 1;
      return known?.count ?? 1;
    },
    /** Throws an ApiError (42900) when the key has reached the limit. */
    rejectBeyond: (key: string, what: string): void => {
      const known = counts.get(key);
      if (known === undefined || known.count < limit) return;
      const seconds = Math.max(1, Math.ceil(counts.getRemainingTTL(key) / 1_000));
      throw new ApiError(42900, `${what}; retry in ${seconds} s`, { 'retry-after': String(seconds) });
    },
  };
}

/** Protects the store from addresses that keep sending invalid tokens. */
export interface RejectedTokens {
  /**
   * Throws an ApiError (42900) if the address sent too many invalid tokens, or sent this invalid token too often. Call
   * it before the lookup of a token. Never rejects a token that was valid before: another client behind the same proxy
   * must not be able to lock it out.
   */
  rejectBeyond(address: string, secret: string): void;
  rejected(address: string, secret: string): void;
  accepted(secret: string): void;
}

/**
 * Limits, for each address (IPv4) or network (IPv6, /64), the different invalid tokens in a minute, and the lookups of
 * each such token. So a client that repeats a revoked token locks out only itself. 0 means no limit.
 */
export function createRejectedTokens(limit: number, monotonicNow: Clock): RejectedTokens {
  if (limit === 0) return { rejectBeyond: ignore, rejected: ignore, accepted: ignore };
  const ofAddress = createRate(limit, monotonicNow);
  const ofToken = createRate(limit, monotonicNow);
  const validBefore = new LRUCache<string, true>({ max: MAX_ENTRIES });
  return {
    rejectBeyond: (address, secret) => {
      const key = digest(secret);
      if (validBefore.has(key)) return;
      const network = networkOf(address);
      ofAddress.rejectBeyond(network, 'too many invalid tokens from this address');
      ofToken.rejectBeyond(`${network} ${key}`, 'this token was rejected too often');
    },
    rejected: (address, secret) => {
      const network = networkOf(address);
      if (ofToken.count(`${network} ${digest(secret)}`) === 1) ofAddress.count(network);
    },
    accepted: (secret) => validBefore.set(digest(secret), true),
  };
}

function ignore(): void {}

/**
 * Returns a hook that limits the requests a minute of each token; it runs after authentication. JWTs are counted by
 * owner, since an owner gets a new JWT whenever the last one expires.
 */
export function limitRequests(limit: number, monotonicNow: Clock) {
  const rate = createRate(limit, monotonicNow);
  return (request: FastifyRequest, _reply: FastifyReply, done: HookHandlerDoneFunction): void => {
    const key = request.caller?.id ?? ownerOf(request);
    rate.rejectBeyond(key, `this token has reached its limit of ${limit} requests a minute`);
    rate.count(key);
    done();
  };
}

function digest(secret: string): string {
  return hash('sha256', secret, 'base64');
}

/**
 * Returns the IPv4 address, or the first 64 bits of an IPv6 address: a customer usually has a whole /64 (RFC 6177).
 * Ignores a port, which some gateways add. Returns `unknown` for anything that is not an address.
 */
export function networkOf(address: string | undefined): string {
  // Undefined after the client has reset its connection.
  if (address === undefined) return 'unknown';
  const host = /^\[(.+)\](?::\d+)?$/.exec(address)?.[1] ?? /^([\d.]+):\d+$/.exec(address)?.[1] ?? address;
  if (!ipaddr.isValid(host)) return 'unknown';
  const parsed = ipaddr.process(host);
  return 'octets' in parsed
    ? parsed.toString()
    : parsed.parts
        .slice(0, 4)
        .map((part) => part.toString(16))
        .join(':');
}
