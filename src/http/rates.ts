import { hash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { Refusal } from '../errors.ts';
import { type AuthenticationHook, readSecret } from './authentication.ts';

const WINDOW_MS = 60_000;

/** Addresses and tokens that are remembered; of more, those that came last. */
const REMEMBERED = 10_000;

/** Events by key, counted for a minute from the first of each key. */
function createRate(atMost: number, now: () => number) {
  const counts = new LRUCache<string, { count: number }>({ max: REMEMBERED, ttl: WINDOW_MS, perf: { now } });
  return {
    count: (key: string): void => {
      const known = counts.get(key);
      if (known === undefined) counts.set(key, { count: 1 });
      else known.count += 1;
    },
    /** Throws a Refusal (42900) when the key has had its share of the minute. */
    refuseBeyond: (key: string, what: string): void => {
      const known = counts.get(key);
      if (known === undefined || known.count < atMost) return;
      const seconds = Math.max(1, Math.ceil(counts.getRemainingTTL(key) / 1_000));
      throw new Refusal(42900, `${what}; come back in ${seconds} s`, { 'retry-after': String(seconds) });
    },
  };
}

/** What stands between an address whose tokens are refused again and again, and the store. */
export interface RefusedTokens {
  /**
   * Throws a Refusal (42900) before a token is looked up for an address that had too many refused. A token that was
   * valid before is looked up all the same, so that nobody is shut out by a neighbour behind the same proxy.
   */
  refuseBeyond(address: string, secret: string): void;
  refused(address: string): void;
  accepted(secret: string): void;
}

/** Allows so many refused tokens a minute for each address (IPv4) or network (IPv6, /64); 0 for any number. */
export function createRefusedTokens(atMost: number, now: () => number): RefusedTokens {
  if (atMost === 0) return { refuseBeyond: ignore, refused: ignore, accepted: ignore };
  const rate = createRate(atMost, now);
  const validBefore = new LRUCache<string, true>({ max: REMEMBERED });
  return {
    refuseBeyond: (address, secret) => {
      if (validBefore.has(digest(secret))) return;
      rate.refuseBeyond(networkOf(address), 'too many tokens from this address were refused');
    },
    refused: (address) => rate.count(networkOf(address)),
    accepted: (secret) => validBefore.set(digest(secret), true),
  };
}

function ignore(): void {}

/** A hook, behind authentication, that allows so many requests a minute for each token. */
export function limitRequests(atMost: number, now: () => number): AuthenticationHook {
  const rate = createRate(atMost, now);
  return (request, _reply, done) => {
    const key = digest(readSecret(request));
    rate.refuseBeyond(key, `this token has had its ${atMost} requests of the minute`);
    rate.count(key);
    done();
  };
}

function digest(secret: string): string {
  return hash('sha256', secret, 'base64');
}

/** An IPv4 address; of an IPv6 address its first 64 bits, since whoever has one usually has them all (RFC 6177). */
export function networkOf(address: string): string {
  const v4 = /^(?:::ffff:)?([0-9]+(?:\.[0-9]+){3})$/i.exec(address)?.[1];
  if (v4 !== undefined) return v4;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const behind = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = Array.from({ length: Math.max(0, 8 - groups.length - behind.length) }, () => '0');
  return [...groups, ...zeros, ...behind]
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':');
}
