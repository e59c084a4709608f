import { decodeJwt, errors, type JWTPayload, jwtVerify } from 'jose';
import { ownerOfSubject, type Scope, scopes } from '../../token.ts';
import type { FindGrant, Grant } from './authentication.ts';
import { createIssuerKeys } from './jwks.ts';

/** Signatures by a public key alone (RFC 8725 §3.1): with `none` or HMAC anybody could sign. */
const ALGORITHMS = [
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

const MAX_LENGTH = 8_192;
const COMPACT_JWS = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;

/** How far the clock of the issuer may be from ours. */
const CLOCK_TOLERANCE_S = 30;

interface OidcOptions {
  /** The issuer's identifier, a URL, exactly as tokens have it in `iss`. */
  readonly issuer: string;
  /** What tokens for this service have in `aud`. */
  readonly audience: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Called when the keys of the issuer could not be read; those that are known go on. */
  readonly onKeysUnreadable: (error: unknown) => void;
}

/**
 * Finds what a JWT access token (RFC 9068) of an OpenID Connect issuer grants; undefined for one that grants nothing.
 * That rejects with an ApiError (50302) when the key of the token would have to be asked for and the issuer cannot be reached.
 */
export function createOidc({ issuer, audience, now, onKeysUnreadable }: OidcOptions): FindGrant {
  const findKey = createIssuerKeys({ issuer, now, onUnreadable: onKeysUnreadable });

  return async (secret) => {
    try {
      // Unverified, but enough to ask nobody for the keys of what cannot be ours.
      if (!isCompactJws(secret) || decodeJwt(secret).iss !== issuer) return undefined;
      const { payload, protectedHeader } = await jwtVerify(secret, findKey, {
        algorithms: ALGORITHMS,
        issuer,
        audience,
        requiredClaims: ['exp', 'sub'],
        clockTolerance: CLOCK_TOLERANCE_S,
        currentDate: new Date(now()),
      });
      return isAccessToken(protectedHeader.typ, payload) ? toGrant(issuer, payload) : undefined;
    } catch (error: unknown) {
      if (error instanceof errors.JOSEError) return undefined;
      throw error;
    }
  };
}

function isCompactJws(secret: string): boolean {
  return (
    secret.length <= MAX_LENGTH && COMPACT_JWS.test(secret) && secret.split('.').every(isCanonicalBase64Url)
  );
}

/** Rejects other spellings of the same bytes (RFC 4648 §3.5), so that a token has one spelling. */
function isCanonicalBase64Url(part: string): boolean {
  return Buffer.from(part, 'base64url').toString('base64url') === part;
}

/**
 * RFC 9068 §2.1 has `at+jwt`; many providers still say `JWT` or nothing. Then only a scope tells an access token from
 * an ID token, which has none. A token bound to a key of its holder (`cnf`, RFC 7800) is no bearer token.
 */
function isAccessToken(typ: string | undefined, payload: JWTPayload): boolean {
  if (payload.cnf !== undefined) return false;
  switch (typ?.toLowerCase()) {
    case 'at+jwt':
    case 'application/at+jwt':
      return true;
    case 'jwt':
    case undefined:
      return grantedIn(payload) !== undefined;
    default:
      return false;
  }
}

function toGrant(issuer: string, payload: JWTPayload): Grant | undefined {
  const { sub, exp } = payload;
  const owner = typeof sub === 'string' ? ownerOfSubject(issuer, sub) : undefined;
  if (owner === undefined || exp === undefined) return undefined;
  return {
    owner,
    scopes: scopesIn(grantedIn(payload)),
    expiresAt: (exp + CLOCK_TOLERANCE_S) * 1_000,
    revokedAt: null,
  };
}

/** `scope` (RFC 9068 §2.2.3), or what some providers have in its place. */
function grantedIn({ scope, scp }: JWTPayload): unknown {
  return scope ?? scp;
}

function scopesIn(granted: unknown): readonly Scope[] {
  const words: unknown = typeof granted === 'string' ? granted.split(' ') : granted;
  return Array.isArray(words) ? scopes.filter((scope) => words.includes(scope)) : [];
}
