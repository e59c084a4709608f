import {
  type CompactJWSHeaderParameters,
  type CryptoKey,
  createLocalJWKSet,
  errors,
  type FlattenedJWSInput,
} from 'jose';
import { type TSchema, Type } from 'typebox';
import { ApiError } from '../../api-errors.ts';
import { compileCheck } from '../../validation.ts';

/** Keys older than this are read again while they go on being used: so long may a withdrawn one live. */
const REFRESH_MS = 300_000;
/** How long keys are used while the provider cannot be reached. */
const KEPT_MS = 86_400_000;
/** The least time between two reads, so that a flood of unknown keys is no flood at the provider. */
const COOLDOWN_MS = 10_000;
const TIMEOUT_MS = 5_000;

const NO_KEYS = createLocalJWKSet({ keys: [] });

const parseMetadata = parserOf(Type.Object({ issuer: Type.String(), jwks_uri: Type.String() }));
const parseKeySet = parserOf(Type.Object({ keys: Type.Array(Type.Object({ kty: Type.String() })) }));

type FindKey = (header: CompactJWSHeaderParameters, token: FlattenedJWSInput) => Promise<CryptoKey>;

interface IssuerKeysOptions {
  /** The issuer's identifier, a URL. */
  readonly issuer: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Called when the keys could not be read; those that are known go on. */
  readonly onUnreadable: (error: unknown) => void;
}

/**
 * The public keys of an OpenID Connect issuer, found by Discovery 1.0 §4 and read by JWK Set (RFC 7517 §5).
 * The result finds the key that a token names. It throws JWKSNoMatchingKey when the issuer, asked now, has no such key,
 * and an ApiError (50302) with the time to the next read when the issuer cannot be asked or was asked just before.
 */
export function createIssuerKeys({ issuer, now, onUnreadable }: IssuerKeysOptions): FindKey {
  let keys = NO_KEYS;
  let readAt = 0;
  let triedAt = Number.NEGATIVE_INFINITY;
  let reading: Promise<boolean> | undefined;
  /** Key ids that were asked for since the last read began, and not found unless `keys` has them. */
  const asked = new Set<string>();

  // A clock that was set back is behind what was noted before; how far, counts as age.
  const since = (time: number): number => Math.abs(now() - time);

  /** Reads the keys, once for all who ask meanwhile. Resolves to false when that failed, or is not due yet. */
  async function refresh(): Promise<boolean> {
    if (reading !== undefined) return reading;
    if (since(triedAt) < COOLDOWN_MS) return false;
    triedAt = now();
    asked.clear();
    reading = read();
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
    } finally {
      reading = undefined;
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
        asked.add(kid);
        return keys(header, token);
      }
      // Else not a 40101: only the issuer knows whether the key is a new one.
      if (asked.has(kid)) throw error;
      throw unavailable(COOLDOWN_MS - since(triedAt));
    }
  };
}

async function readKeys(issuer: string): Promise<typeof NO_KEYS> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const metadataUrl = `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`;
  const metadata = parseMetadata(await readJson(metadataUrl, signal), metadataUrl);
  // Discovery 1.0 §4.3: else one issuer could speak for another.
  if (metadata.issuer !== issuer) {
    throw new Error(`${metadataUrl} is of the issuer ${metadata.issuer}, not of ${issuer}`);
  }
  if (issuer.startsWith('https:') && !metadata.jwks_uri.startsWith('https:')) {
    throw new Error(`jwks_uri of ${metadataUrl} must be an https URL`);
  }
  return createLocalJWKSet(parseKeySet(await readJson(metadata.jwks_uri, signal), metadata.jwks_uri));
}

async function readJson(url: string, signal: AbortSignal): Promise<unknown> {
  const response = await fetch(url, { signal, redirect: 'error', headers: { accept: 'application/json' } });
  if (response.status !== 200) throw new Error(`${url} answered ${response.status}`);
  return response.json();
}

function parserOf<S extends TSchema>(schema: S) {
  const check = compileCheck(schema);
  return (value: unknown, url: string) => {
    const checked = check(value);
    if ('value' in checked) return checked.value;
    throw new Error(`${url}: ${checked.violation.field} ${checked.violation.demand}`);
  };
}

function unavailable(waitMs: number): ApiError {
  const seconds = String(Math.max(1, Math.ceil(waitMs / 1_000)));
  return new ApiError(50302, 'the identity provider cannot be asked for the key of this token', {
    'retry-after': seconds,
  });
}
