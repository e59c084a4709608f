import { decodeJwt, errors, type JWTPayload, jwtVerify } from 'jose';
import { ownerOfSubject, type Scope, scopes } from '../../token.ts';
import type { Grant, VerifyJwt } from './authentication.ts';
import { ALGORITHMS, createIssuerKeys, type FindKey, type IssuerKeysOptions } from './jwks.ts';

export const MAX_JWT_LENGTH = 8_192;
const COMPACT_JWS = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;

/** Max difference between the clocks of the issuer and the service, in seconds. */
export const CLOCK_TOLERANCE_S = 30;

interface OidcOptions extends IssuerKeysOptions {
  /** Value of the claim `aud` in tokens for this service. */
  readonly audience: string;
  /** Returns the current time in milliseconds since the epoch, for the claims. */
  readonly now: () => number;
}

/**
 * Returns a function that verifies JWT access tokens (RFC 9068) of an OpenID Connect issuer. It resolves to
 * undefined for an invalid token. It rejects with an ApiError (50302) if the token's key is unknown and the
 * issuer cannot be reached.
 */
export function createJwtVerifier(options: OidcOptions): VerifyJwt {
  const { issuer, audience, now } = options;
  const verifyWithKeys = createIssuerKeys(options);

  return async (secret, limits) => {
    try {
      // Checks the unverified `iss` first, so that tokens of other issuers cause no request for keys.
      if (!isCompactJws(secret) || decodeJwt(secret).iss !== issuer) return undefined;
      const verify = (findKey: FindKey) =>
        limits.verify(() =>
          jwtVerify(secret, findKey, {
            algorithms: ALGORITHMS,
            issuer,
            audience,
            requiredClaims: ['exp', 'sub'],
            clockTolerance: CLOCK_TOLERANCE_S,
            currentDate: new Date(now()),
          }),
        );
      const { payload, protectedHeader } = await verifyWithKeys(secret, verify, limits.wait);
      return isAccessToken(protectedHeader.typ, payload) ? toGrant(issuer, payload) : undefined;
    } catch (error: unknown) {
      if (error instanceof errors.JOSEError) return undefined;
      throw error;
    }
  };
}

function isCompactJws(secret: string): boolean {
  return (
    secret.length <= MAX_JWT_LENGTH &&
    COMPACT_JWS.test(secret) &&
    secret.split('.').every(isCanonicalBase64Url)
  );
}

/**
 * Returns true for canonical base64url (RFC 4648 §3.5). Non-canonical text would give the same token several
 * spellings, and several cache entries.
 */
function isCanonicalBase64Url(part: string): boolean {
  return Buffer.from(part, 'base64url').toString('base64url') === part;
}

/**
 * Returns true for an access token. Its type should be `at+jwt` (RFC 9068 §2.1), but many providers send
 * `JWT` or no type. A token with `JWT` or no type must have a scope: an ID token has none. Returns false for
 * a token bound to a key (`cnf`, RFC 7800), since it is not a bearer token.
 */
function isAccessToken(typ: unknown, payload: JWTPayload): boolean {
  if (payload.cnf !== undefined) return false;
  switch (typeof typ === 'string' ? typ.toLowerCase() : typ) {
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

/** Returns the claim `scope` (RFC 9068 §2.2.3), or `scp`, the name that some providers use. */
function grantedIn({ scope, scp }: JWTPayload): unknown {
  return scope ?? scp;
}

function scopesIn(granted: unknown): readonly Scope[] {
  const words: unknown = typeof granted === 'string' ? granted.split(' ') : granted;
  return Array.isArray(words) ? scopes.filter((scope) => words.includes(scope)) : [];
}
