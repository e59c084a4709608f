import { decodeJwt, errors, type JWTPayload, jwtVerify } from 'jose';
import { ownerOfSubject, type Scope, scopes } from '../../token.ts';
import type { Grant, TokenRejection, VerifyJwt } from './authentication.ts';
import { ALGORITHMS, createIssuerKeys, type FindKey, type IssuerKeysOptions } from './jwks.ts';

export const MAX_JWT_LENGTH = 8_192;
const COMPACT_JWS = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;

/** Max difference between the clocks of the issuer and the service, in seconds. */
export const CLOCK_TOLERANCE_S = 30;

type Rejection = TokenRejection['rejection'];

interface OidcOptions extends IssuerKeysOptions {
  /** Value of the claim `aud` in tokens for this service. */
  readonly audience: string;
}

/**
 * Returns a function that verifies JWT access tokens (RFC 9068) of an OpenID Connect issuer. It resolves to
 * undefined or a rejection for an invalid token. It rejects with an ApiError (50302) if the token's key is unknown and the
 * issuer cannot be reached.
 */
export function createJwtVerifier(options: OidcOptions): VerifyJwt {
  const { issuer, audience, now } = options;
  const verifyWithKeys = createIssuerKeys(options);

  return async (secret, limits) => {
    try {
      // Checks the unverified `iss` first, so that tokens of other issuers cause no request for keys.
      if (!isCompactJws(secret)) return { rejection: 'malformed' };
      if (decodeJwt(secret).iss !== issuer) return { rejection: 'issuer' };
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
      const owner = ownerIn(issuer, payload);
      const rejection = rejectionOf(protectedHeader.typ, payload);
      if (owner === undefined) return { rejection: 'claims' };
      return rejection === undefined ? toGrant(owner, payload) : { rejection, owner };
    } catch (error: unknown) {
      // The signature of such a token is valid: its claims are checked after it.
      if (error instanceof errors.JWTExpired || error instanceof errors.JWTClaimValidationFailed) {
        const owner = ownerIn(issuer, error.payload);
        return { rejection: rejectionByClaim(error), ...(owner !== undefined && { owner }) };
      }
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

function rejectionByClaim(error: errors.JWTExpired | errors.JWTClaimValidationFailed): Rejection {
  if (error instanceof errors.JWTExpired) return 'expired';
  return error.claim === 'aud' ? 'audience' : 'claims';
}

/**
 * Returns undefined for an access token. Its type should be `at+jwt` (RFC 9068 §2.1), but many providers send
 * `JWT` or no type. A token with `JWT` or no type must have a scope: an ID token has none. Rejects
 * a token bound to a key (`cnf`, RFC 7800), since it is not a bearer token.
 */
function rejectionOf(typ: unknown, payload: JWTPayload): Rejection | undefined {
  if (payload.cnf !== undefined) return 'claims';
  switch (typeof typ === 'string' ? typ.toLowerCase() : typ) {
    case 'at+jwt':
    case 'application/at+jwt':
      return undefined;
    case 'jwt':
    case undefined:
      return grantedIn(payload) === undefined ? 'scope' : undefined;
    default:
      return 'claims';
  }
}

function ownerIn(issuer: string, { sub }: JWTPayload): string | undefined {
  return typeof sub === 'string' ? ownerOfSubject(issuer, sub) : undefined;
}

function toGrant(owner: string, payload: JWTPayload): Grant {
  return {
    owner,
    scopes: scopesIn(grantedIn(payload)),
    // `requiredClaims` has `exp`.
    expiresAt: (Number(payload.exp) + CLOCK_TOLERANCE_S) * 1_000,
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
