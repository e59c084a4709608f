import {
  type CompactJWSHeaderParameters,
  type CryptoKey,
  createLocalJWKSet,
  errors,
  type FlattenedJWSInput,
} from 'jose';
import { ApiError } from '../../api-errors.ts';
import { type TSchema, Type } from '../../schema.ts';
import { compileCheck } from '../../validation.ts';

/**
 * Age in milliseconds from which cached keys are refreshed in the background (stale-while-revalidate). Until
 * this refresh, the service accepts keys that the issuer has withdrawn.
 */
export const REFRESH_MS = 300_000;
/** Max age of cached keys in milliseconds while the identity provider cannot be reached. */
export const KEPT_MS = 86_400_000;
/** Min milliseconds between two reads of the keys, so that tokens with unknown keys cause few reads. */
export const COOLDOWN_MS = 10_000;
const TIMEOUT_MS = 5_000;

const NO_KEYS = createLocalJWKSet({ keys: [] });

const parseMetadata = parserOf(Type.Object({ issuer: Type.String(), jwks_uri: Type.String() }));
const parseKeySet = parserOf(Type.Object({ keys: Type.Array(Type.Object({ kty: Type.String() })) }));

type FindKey = (header: CompactJWSHeaderParameters, token: FlattenedJWSInput) => Promise<CryptoKey>;

interface IssuerKeysOptions {
  /** URL that identifies the issuer. */
  readonly issuer: string;
  /** Returns the current time in milliseconds since the epoch. */
  readonly now: () => number;
  /** Called when the keys could not be read. The known keys stay in use. */
  readonly onUnreadable: (error: unknown) => void;
}

/**
 * Returns a function that finds the public key of a token. The keys come from the OpenID Connect issuer
 * (Discovery 1.0 §4, RFC 7517 §5). The function throws JWKSNoMatchingKey if the issuer has no such key. It
 * throws an ApiError (50302) if the keys cannot be read now.
 */
export function createIssuerKeys({ issuer, now, onUnreadable }: IssuerKeysOptions): FindKey {
  let keys = NO_KEYS;
  let readAt = 0;
  let triedAt = Number.NEGATIVE_INFINITY;
  let reading: Promise<boolean> | undefined;
  /**
   * Key ids of tokens whose verification waited for the last read of the keys. If `keys` lacks one of these
   * ids, the issuer had no such key.
   */
  const lookedUp = new Set<string>();

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
      keys = await readKeys(issuer);
      readAt = now();
      return true;
    } catch (error: unknown) {
      onUnreadable(error);
      return false;
    }
  }

  void refresh();

  return async (header, token) => {
    const age = since(readAt);
    if (age > KEPT_MS) keys = NO_KEYS;
    else if (age > REFRESH_MS) void refresh();
    try {
      return await keys(header, token);
    } catch (error: unknown) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      const { kid = '' } = header;
      if (await refresh()) {
        lookedUp.add(kid);
        return keys(header, token);
      }
      // If `lookedUp` has the id, the last read returned no such key: the token is invalid. Otherwise the
      // issuer may have added the key since that read, so the client gets 50302.
      if (lookedUp.has(kid)) throw error;
      throw unavailable(COOLDOWN_MS - since(triedAt));
    }
  };
}

async function readKeys(issuer: string): Promise<typeof NO_KEYS> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
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
  return createLocalJWKSet(parseKeySet(await readJson(metadata.jwks_uri, signal), metadata.jwks_uri));
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
    throw new Error(`${url}: ${checked.violation.field} ${checked.violation.demand}`);
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
