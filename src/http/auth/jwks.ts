import { hash } from 'node:crypto';
import {
  type CompactJWSHeaderParameters,
  type CryptoKey,
  createLocalJWKSet,
  errors,
  type FlattenedJWSInput,
  flattenedVerify,
  type JWK,
} from 'jose';
import { LRUCache } from 'lru-cache';
import { ApiError } from '../../api-errors.ts';
import { afterRunning } from '../../running-time.ts';
import { type TSchema, Type } from '../../schema.ts';
import { compileCheck } from '../../validation.ts';
import type { Moment, Run } from './authentication.ts';

/**
 * Allowed signature algorithms: only public-key ones (RFC 8725 §3.1). `none` and HMAC would allow forgeries.
 */
export const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];

/** Age in milliseconds from which cached keys are refreshed in the background (stale-while-revalidate). */
export const REFRESH_MS = 240_000;
/**
 * Age in milliseconds from which tokens wait for the refresh. The service accepts a withdrawn key for up to
 * this time, while the provider answers within SLOW_FAILURE_MS.
 */
export const STALE_MS = 300_000;
/** Max age of cached keys in milliseconds while the identity provider cannot be reached. */
export const KEPT_MS = 86_400_000;
/** Min milliseconds between two reads of the keys, so that tokens with unknown keys cause few reads. */
export const COOLDOWN_MS = 10_000;
/** Max milliseconds of a read, including the check of the keys. */
const TIMEOUT_MS = 5_000;
/** Min milliseconds of a failed read after which tokens with known keys do not wait for the next reads. */
export const SLOW_FAILURE_MS = 1_000;
/** Max bytes of each document of the issuer, decompressed. */
export const MAX_DOCUMENT_BYTES = 1_048_576;
/** Max keys of the issuer. Each takes half a millisecond to check. */
export const MAX_KEYS = 100;

/** Max keys that one token is verified with, if several match it. A forged token is verified with all of them. */
export const MAX_KEYS_TRIED = 4;

/** Max tokens in the memory of tokens with unknown keys. */
export const MAX_WITHOUT_KEY = 1_000;

const NO_KEYS = createLocalJWKSet({ keys: [] });

const countOf = (keys: typeof NO_KEYS): number => keys.jwks().keys.length;

const parseMetadata = parserOf(Type.Object({ issuer: Type.String(), jwks_uri: Type.String() }));
const parseKeySet = parserOf(Type.Object({ keys: Type.Array(Type.Unknown()) }));
const checkKey = compileCheck(Type.Object({ kty: Type.String() }));

export type FindKey = (header: CompactJWSHeaderParameters, token: FlattenedJWSInput) => Promise<CryptoKey>;

type Verify<T> = (findKey: FindKey) => Promise<T>;

/**
 * Runs `verify` with a function that finds the public key of a token. Runs it again if the signature is wrong and
 * several keys match the token, or if the token may have a new key and the keys could be refreshed. Runs everything
 * that waits for the identity provider by `wait`.
 */
type VerifyWithKeys = <T>(token: string, verify: Verify<T>, wait: Run) => Promise<T>;

const NEVER: Moment = { wall: Number.NEGATIVE_INFINITY, monotonic: Number.NEGATIVE_INFINITY };

export interface IssuerKeysOptions {
  /** URL that identifies the issuer, exactly as in the claim `iss` of its tokens. */
  readonly issuer: string;
  /** Returns the current time in milliseconds since the epoch. It passes while the machine sleeps. */
  readonly now: () => number;
  /** Returns the milliseconds of a monotonic clock, so that changes of the wall clock drop no keys. */
  readonly monotonicNow: () => number;
  /** Ends reads of the keys, which would keep the process alive. Then `onKeysUnreadable` is not called. */
  readonly closed: AbortSignal;
  /** Called after each read that found usable keys, with their number. */
  readonly onKeysRead: (keys: number) => void;
  /** Called when no usable key could be read, with the number of known keys, which stay in use. */
  readonly onKeysUnreadable: (error: unknown, keys: number) => void;
  /** Called at each read for each key that no token can be verified with. The key is ignored. */
  readonly onUnusableKey: (kid: string | undefined, problem: string) => void;
}

/**
 * Returns a function that verifies a token with the keys of the OpenID Connect issuer (Discovery 1.0 §4, RFC
 * 7517 §5). The function rejects with the error of `verify`, such as JWKSNoMatchingKey if a read of the keys
 * that began after the token arrived has returned no such key. It rejects with an ApiError (50302) if the
 * token may have a newer key.
 */
export function createIssuerKeys(options: IssuerKeysOptions): VerifyWithKeys {
  const { issuer, now, monotonicNow, closed, onKeysRead, onKeysUnreadable } = options;
  let keys = NO_KEYS;
  let readAt = NEVER;
  let triedAt = NEVER;
  let slowFailureAt = NEVER;
  let reading: Promise<boolean> | undefined;
  /** Number of reads that have started, and the number of the read that returned `keys`. */
  let started = 0;
  let current = 0;
  /**
   * Tokens whose key was unknown, by digest, with the number of reads that had started when the token arrived.
   * Not by key id: anyone can send a forged token with the id of the next key.
   */
  const withoutKey = new LRUCache<string, number>({ max: MAX_WITHOUT_KEY });

  const moment = (): Moment => ({ wall: now(), monotonic: monotonicNow() });

  /** Returns the longer time of both clocks. A wall clock that was set counts as time too: it costs one read. */
  const since = ({ wall, monotonic }: Moment): number =>
    Math.max(Math.abs(now() - wall), monotonicNow() - monotonic);

  /**
   * Reads the keys. Concurrent callers share one read. Resolves to false if the read fails. Also resolves to
   * false, without a read, within COOLDOWN_MS after the last attempt.
   */
  async function refresh(): Promise<boolean> {
    if (reading !== undefined) return reading;
    if (since(triedAt) < COOLDOWN_MS) return false;
    triedAt = moment();
    started += 1;
    reading = read(started).finally(() => {
      reading = undefined;
    });
    return reading;
  }

  async function read(number: number): Promise<boolean> {
    const begunAt = moment();
    try {
      // An empty set withdraws all keys. It is a failure nevertheless, since no token can be verified.
      keys = await readKeys(options);
      if (countOf(keys) === 0) throw new Error(`the identity provider ${issuer} publishes no usable key`);
      current = number;
      readAt = moment();
      onKeysRead(countOf(keys));
      return true;
    } catch (error: unknown) {
      if (since(begunAt) >= SLOW_FAILURE_MS) slowFailureAt = moment();
      if (!closed.aborted) onKeysUnreadable(error, countOf(keys));
      return false;
    }
  }

  /** Refreshes old keys, in the background unless they are very old. */
  async function refreshOldKeys(wait: Run): Promise<void> {
    if (monotonicNow() - readAt.monotonic > KEPT_MS) keys = NO_KEYS;
    const age = since(readAt);
    if (age <= REFRESH_MS) return;
    const refreshed = refresh();
    // After a recent slow failure, tokens with known keys do not wait: each try can take TIMEOUT_MS.
    if (age > STALE_MS && since(slowFailureAt) > STALE_MS) await wait(() => refreshed);
  }

  void refresh();

  return async (token, verify, wait) => {
    const arrivedAfter = started;
    await refreshOldKeys(wait);
    let kid = '';
    let used = current;
    const findKey: FindKey = (header, input) => {
      kid = header.kid ?? '';
      used = current;
      return keys(header, input);
    };
    try {
      return await verifyWithEach(findKey, verify);
    } catch (error: unknown) {
      if (!mayHaveNewKey(error, kid)) throw error;
      const digest = hash('sha256', token, 'base64');
      const startedBefore = withoutKey.get(digest) ?? arrivedAfter;
      withoutKey.set(digest, startedBefore);
      // A read that began before the token arrived may have returned keys that are older than the token's.
      const orUnavailable = (rejection: unknown): unknown =>
        startedBefore < used || !mayHaveNewKey(rejection, kid)
          ? rejection
          : unavailable(COOLDOWN_MS - since(triedAt));
      if (!(await wait(refresh))) throw orUnavailable(error);
      return await verifyWithEach(findKey, verify).catch((again: unknown) => {
        throw orUnavailable(again);
      });
    }
  };
}

/**
 * Verifies with the key of a token. If several match, such as two keys with one id (RFC 7517 §4.5), with the first
 * MAX_KEYS_TRIED in turn, until the signature is right.
 */
async function verifyWithEach<T>(findKey: FindKey, verify: Verify<T>): Promise<T> {
  try {
    return await verify(findKey);
  } catch (error: unknown) {
    if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error;
    let rejection: errors.JOSEError = error;
    let tried = 0;
    for await (const key of error) {
      if (tried === MAX_KEYS_TRIED) break;
      tried += 1;
      try {
        return await verify(async () => key);
      } catch (wrong: unknown) {
        if (!(wrong instanceof errors.JWSSignatureVerificationFailed)) throw wrong;
        rejection = wrong;
      }
    }
    throw rejection;
  }
}

/** Returns true for an unknown key. Without a key id, also for a wrong signature, which a new key may have made. */
function mayHaveNewKey(error: unknown, kid: string): boolean {
  return (
    error instanceof errors.JWKSNoMatchingKey ||
    (kid === '' && error instanceof errors.JWSSignatureVerificationFailed)
  );
}

async function readKeys(options: IssuerKeysOptions): Promise<typeof NO_KEYS> {
  const timeout = new AbortController();
  const cancelTimeout = afterRunning(TIMEOUT_MS, () => timeout.abort());
  try {
    return await readKeysUntil(AbortSignal.any([options.closed, timeout.signal]), options);
  } finally {
    cancelTimeout();
  }
}

async function readKeysUntil(
  signal: AbortSignal,
  { issuer, onUnusableKey }: IssuerKeysOptions,
): Promise<typeof NO_KEYS> {
  const metadataUrl = `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`;
  const metadata = parseMetadata(await readJson(metadataUrl, signal), metadataUrl);
  // The metadata must name the configured issuer (Discovery 1.0 §4.3), so that no issuer can impersonate
  // another.
  if (metadata.issuer !== issuer) {
    throw new Error(`${metadataUrl} names the issuer ${metadata.issuer}, but --oidc-issuer is ${issuer}`);
  }
  if (issuer.startsWith('https:') && URL.parse(metadata.jwks_uri)?.protocol !== 'https:') {
    throw new Error(`jwks_uri in ${metadataUrl} must be an https URL`);
  }
  const { keys } = parseKeySet(await readJson(metadata.jwks_uri, signal), metadata.jwks_uri);
  if (keys.length > MAX_KEYS) throw new Error(`${metadata.jwks_uri} has more than ${MAX_KEYS} keys`);
  const usable: JWK[] = [];
  for (const [index, key] of keys.entries()) {
    const checked = checkKey(key);
    if ('violation' in checked) {
      const { field, rule } = checked.violation;
      onUnusableKey(undefined, `keys/${index}${field && `/${field}`} ${rule}`);
      continue;
    }
    const jwk: JWK = checked.value;
    if (jwk.use === 'enc') continue;
    if (signal.aborted) throw new Error(`the keys were not checked within ${TIMEOUT_MS} ms`);
    const problem = await problemOf(jwk);
    if (problem === undefined) usable.push(jwk);
    else onUnusableKey(jwk.kid, problem);
  }
  return createLocalJWKSet({ keys: usable });
}

/**
 * Resolves to the problem of an unusable key, such as an RSA key under 2048 bits, a malformed key, or a key for
 * another algorithm. Resolves to undefined for any other key. RFC 7517 §5 says to ignore unusable keys.
 */
async function problemOf(jwk: JWK): Promise<string | undefined> {
  let problem: string | undefined = `none of the algorithms ${ALGORITHMS.join(', ')} fits the key`;
  for (const alg of ALGORITHMS) {
    const header = Buffer.from(JSON.stringify({ alg })).toString('base64url');
    try {
      const findKey = createLocalJWKSet({ keys: [jwk] });
      await flattenedVerify({ protected: header, payload: '', signature: '' }, findKey);
    } catch (error: unknown) {
      // For an unusable key jose also throws errors of other classes, which would make each of its tokens a 50000.
      if (!(error instanceof errors.JOSEError)) return String(error);
      if (error instanceof errors.JWSSignatureVerificationFailed) problem = undefined;
      // Any other error than that of an algorithm that does not fit, such as for a private key.
      else if (!(error instanceof errors.JWKSNoMatchingKey)) return String(error);
    }
  }
  return problem;
}

async function readJson(url: string, signal: AbortSignal): Promise<unknown> {
  try {
    return JSON.parse(await readDocument(url, signal));
  } catch (error: unknown) {
    throw signal.aborted ? new Error(`${url} has not answered within the ${TIMEOUT_MS} ms of a read`) : error;
  }
}

async function readDocument(url: string, signal: AbortSignal): Promise<string> {
  const response = await fetch(url, { signal, redirect: 'manual', headers: { accept: 'application/json' } });
  if (response.status !== 200) {
    // Closes the connection, since the body may never end.
    await response.body?.cancel();
    throw new Error(`${url} returned status ${response.status}`);
  }
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of response.body ?? []) {
    size += piece.length;
    if (size > MAX_DOCUMENT_BYTES) throw new Error(`${url} returned more than ${MAX_DOCUMENT_BYTES} bytes`);
    pieces.push(piece);
  }
  return new TextDecoder().decode(Buffer.concat(pieces));
}

function parserOf<T>(schema: TSchema<T>) {
  const check = compileCheck(schema);
  return (value: unknown, url: string) => {
    const checked = check(value);
    if ('value' in checked) return checked.value;
    throw new Error(`${url}: ${checked.violation.field} ${checked.violation.rule}`);
  };
}

function unavailable(waitMs: number): ApiError {
  const seconds = String(Math.max(1, Math.ceil(waitMs / 1_000)));
  return new ApiError(
    50302,
    'the key that verifies this token cannot be fetched from the identity provider; retry later',
    {
      'retry-after': seconds,
    },
  );
}
