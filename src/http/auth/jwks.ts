import {
  type CompactJWSHeaderParameters,
  type CryptoKey,
  createLocalJWKSet,
  errors,
  type FlattenedJWSInput,
  flattenedVerify,
  type JSONWebKeySet,
  type JWK,
} from 'jose';
import { LRUCache } from 'lru-cache';
import { ApiError } from '../../api-errors.ts';
import { type TSchema, Type } from '../../schema.ts';
import { compileCheck } from '../../validation.ts';

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
 * this time.
 */
export const STALE_MS = 300_000;
/** Max age of cached keys in milliseconds while the identity provider cannot be reached. */
export const KEPT_MS = 86_400_000;
/** Min milliseconds between two reads of the keys, so that tokens with unknown keys cause few reads. */
export const COOLDOWN_MS = 10_000;
const TIMEOUT_MS = 5_000;

/** Max key ids in the memory of unknown keys. An id has up to 8 KiB. */
export const MAX_LOOKED_UP = 1_000;

const NO_KEYS = createLocalJWKSet({ keys: [] });

const parseMetadata = parserOf(Type.Object({ issuer: Type.String(), jwks_uri: Type.String() }));
const parseKeySet = parserOf(Type.Object({ keys: Type.Array(Type.Object({ kty: Type.String() })) }));

type FindKey = (header: CompactJWSHeaderParameters, token: FlattenedJWSInput) => Promise<CryptoKey>;

/**
 * Runs `verify` with a function that finds the public key of a token. Runs it again if the token may have a
 * new key and the keys could be refreshed.
 */
type VerifyWithKeys = <T>(verify: (findKey: FindKey) => Promise<T>) => Promise<T>;

interface IssuerKeysOptions {
  /** URL that identifies the issuer. */
  readonly issuer: string;
  /** Returns the current time in milliseconds since the epoch. */
  readonly now: () => number;
  /** Ends reads of the keys, without a call of `onUnreadable`. */
  readonly closed: AbortSignal;
  /** Called when the keys could not be read. The known keys stay in use. */
  readonly onUnreadable: (error: unknown) => void;
  /** Called at each read for each key that no token can be verified with. The key is ignored. */
  readonly onUnusableKey: (kid: string | undefined, problem: string) => void;
}

/**
 * Returns a function that verifies a token with the keys of the OpenID Connect issuer (Discovery 1.0 §4, RFC
 * 7517 §5). The function rejects with the error of `verify`, such as JWKSNoMatchingKey if the issuer has no
 * such key. It rejects with an ApiError (50302) if the token may have a new key and the keys cannot be read
 * now.
 */
export function createIssuerKeys(options: IssuerKeysOptions): VerifyWithKeys {
  const { now, closed, onUnreadable } = options;
  let keys = NO_KEYS;
  let readAt = 0;
  let triedAt = Number.NEGATIVE_INFINITY;
  let failedAt = Number.NEGATIVE_INFINITY;
  let reading: Promise<boolean> | undefined;
  /**
   * Key ids of tokens whose verification waited for the last read of the keys; '' for a token without one. If
   * `keys` lacks the key of such a token, the issuer had no such key. Forged tokens can have any number of ids.
   */
  const lookedUp = new LRUCache<string, true>({ max: MAX_LOOKED_UP });

  // Returns the milliseconds since `time`. With `Math.abs`, keys expire even after the clock was set back.
  const since = (time: number): number => Math.abs(now() - time);

  /**
   * Reads the keys. Concurrent callers share one read. Resolves to false if the read fails. Also resolves to
   * false, without a read, within COOLDOWN_MS after the last attempt.
   */
  async function refresh(): Promise<boolean> {
    if (reading !== undefined) return reading;
    if (since(triedAt) < COOLDOWN_MS) return false;
    triedAt = now();
    lookedUp.clear();
    reading = read().finally(() => {
      reading = undefined;
    });
    return reading;
  }

  async function read(): Promise<boolean> {
    try {
      keys = await readKeys(options);
      readAt = now();
      return true;
    } catch (error: unknown) {
      failedAt = now();
      if (!closed.aborted) onUnreadable(error);
      return false;
    }
  }

  /** Refreshes old keys. Resolves to true if the caller has waited for a successful read. */
  async function refreshOldKeys(): Promise<boolean> {
    const age = since(readAt);
    if (age > KEPT_MS) keys = NO_KEYS;
    if (age <= REFRESH_MS) return false;
    const refreshed = refresh();
    // After a recent failure, tokens with known keys do not wait: each try can take TIMEOUT_MS.
    return age > STALE_MS && since(failedAt) > STALE_MS ? refreshed : false;
  }

  void refresh();

  return async (verify) => {
    const hasWaited = await refreshOldKeys();
    let kid = '';
    const findKey: FindKey = (header, token) => {
      kid = header.kid ?? '';
      return keys(header, token);
    };
    try {
      return await verify(findKey);
    } catch (error: unknown) {
      if (!mayHaveNewKey(error, kid)) throw error;
      if (hasWaited) lookedUp.set(kid, true);
      if (await refresh()) {
        lookedUp.set(kid, true);
        return verify(findKey);
      }
      // If `lookedUp` has the id, the last read returned no such key: the token is invalid. Otherwise the
      // issuer may have added the key since that read, so the client gets 50302.
      if (lookedUp.has(kid)) throw error;
      throw unavailable(COOLDOWN_MS - since(triedAt));
    }
  };
}

/**
 * Returns true for an unknown key. Without a key id, also for a wrong signature, which a new key may have
 * made, and for several keys, of which the issuer may have withdrawn all but one.
 */
function mayHaveNewKey(error: unknown, kid: string): boolean {
  return (
    error instanceof errors.JWKSNoMatchingKey ||
    (kid === '' &&
      (error instanceof errors.JWSSignatureVerificationFailed ||
        error instanceof errors.JWKSMultipleMatchingKeys))
  );
}

async function readKeys({ issuer, closed, onUnusableKey }: IssuerKeysOptions): Promise<typeof NO_KEYS> {
  const signal = AbortSignal.any([closed, AbortSignal.timeout(TIMEOUT_MS)]);
  const metadataUrl = `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`;
  const metadata = parseMetadata(await readJson(metadataUrl, signal), metadataUrl);
  // The metadata must name the configured issuer (Discovery 1.0 §4.3), so that no issuer can impersonate
  // another.
  if (metadata.issuer !== issuer) {
    throw new Error(`${metadataUrl} names the issuer ${metadata.issuer}, but --oidc-issuer is ${issuer}`);
  }
  if (issuer.startsWith('https:') && !metadata.jwks_uri.startsWith('https:')) {
    throw new Error(`jwks_uri in ${metadataUrl} must be an https URL`);
  }
  const { keys }: JSONWebKeySet = parseKeySet(await readJson(metadata.jwks_uri, signal), metadata.jwks_uri);
  const usable: JWK[] = [];
  for (const jwk of keys) {
    const problem = await problemOf(jwk);
    if (problem === undefined) usable.push(jwk);
    else onUnusableKey(jwk.kid, problem);
  }
  return createLocalJWKSet({ keys: usable });
}

/**
 * Resolves to the problem of an unusable key, such as an RSA key under 2048 bits or a malformed key. Resolves
 * to undefined for any other key. RFC 7517 §5 says to ignore unusable keys.
 */
async function problemOf(jwk: JWK): Promise<string | undefined> {
  const findKey = createLocalJWKSet({ keys: [jwk] });
  for (const alg of ALGORITHMS) {
    const header = Buffer.from(JSON.stringify({ alg })).toString('base64url');
    try {
      await flattenedVerify({ protected: header, payload: '', signature: '' }, findKey);
    } catch (error: unknown) {
      // A JOSEError is expected: the signature is wrong, or the algorithm is not the key's. For an unusable
      // key jose throws other errors, which would make each of its tokens a 50000.
      if (!(error instanceof errors.JOSEError)) return String(error);
    }
  }
  return undefined;
}

async function readJson(url: string, signal: AbortSignal): Promise<unknown> {
  const response = await fetch(url, { signal, redirect: 'error', headers: { accept: 'application/json' } });
  if (response.status !== 200) throw new Error(`${url} returned status ${response.status}`);
  return response.json();
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
