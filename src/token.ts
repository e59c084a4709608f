import { hash, randomBytes, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';

export const scopes = ['plants:read', 'plants:write'] as const;
export type Scope = (typeof scopes)[number];

/** A token as the store keeps it. Times are in milliseconds since the epoch. */
export interface Token {
  /** The public identifier, which `token list` shows and `token revoke` takes. */
  readonly id: string;
  readonly digest: Uint8Array;
  readonly owner: string;
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly createdAt: number;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
  readonly lastUsedAt: number | null;
}

/** A token that was found in the store. Its finder knows the digest, or does not need it. */
export type FoundToken = Omit<Token, 'digest'>;

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
export const TOKEN_PREFIX = 'plt_';
const SECRET_LENGTH = 43;
const CHECKSUM_LENGTH = 6;
const SECRET = new RegExp(`^${TOKEN_PREFIX}[0-9A-Za-z]{${SECRET_LENGTH + CHECKSUM_LENGTH}}$`);
const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 };
const OWNER_LENGTH = 128;
const OWNER = new RegExp(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,${OWNER_LENGTH - 1}}$`);
const NAME_LENGTH = 255;
const NAME = new RegExp(`^[^\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}]{0,${NAME_LENGTH}}$`, 'u');
/** Max characters of an issuer URL after `http://` or `https://`, since the URL becomes part of owner names. */
export const ISSUER_LENGTH = 247;
const SUBJECT_OWNER = new RegExp(`^https?://[!"$-~]{1,${ISSUER_LENGTH}}#[ -~]{1,255}$`);

/**
 * Text of the rule for local owner names, used in error messages. Local owners use tokens that this service
 * issues, not tokens of an OpenID Connect issuer.
 */
export const OWNER_RULE = `1 to ${OWNER_LENGTH} ASCII letters, digits and ._@+-, beginning with a letter or digit`;

/** Text of the rule for names of tokens, used in error messages. */
export const TOKEN_NAME_RULE = `up to ${NAME_LENGTH} characters without control and format characters`;

export const DEFAULT_EXPIRES = '90d';

/** Text of the rule for lifetimes of tokens, used in error messages. */
export const EXPIRES_RULE = '1 to 999999 with m, h or d, such as 30m, 12h or 90d, or never';

/** Min milliseconds between two recorded times at which a token was last used, in either direction. */
export const LAST_USE_STEP_MS = 60_000;

function base62(value: bigint, length: number): string {
  let text = '';
  for (let rest = value; rest > 0n; rest /= 62n) text = ALPHABET.charAt(Number(rest % 62n)) + text;
  return text.padStart(length, '0');
}

function checksum(text: string): string {
  return base62(BigInt(crc32(text)), CHECKSUM_LENGTH);
}

/** Creates a secret: `plt_`, 32 random bytes as 43 base62 characters, and a CRC-32 as 6 more. */
export function mintSecret(): string {
  const random = BigInt(`0x${randomBytes(32).toString('hex')}`);
  const body = TOKEN_PREFIX + base62(random, SECRET_LENGTH);
  return body + checksum(body);
}

/** True for a secret with a valid form and checksum. Detects typing errors without a query to the store. */
export function isWellFormedSecret(text: string): boolean {
  if (!SECRET.test(text)) return false;
  const body = text.slice(0, -CHECKSUM_LENGTH);
  return checksum(body) === text.slice(-CHECKSUM_LENGTH);
}

/** Returns the SHA-256 of a secret. The store keeps only this digest. */
export function digestSecret(secret: string): Uint8Array {
  return hash('sha256', secret, 'buffer');
}

function mintTokenId(): string {
  return Array.from({ length: 12 }, () => ALPHABET.charAt(randomInt(62))).join('');
}

/** True for a text in the form of a token id. */
export function isTokenId(text: string): boolean {
  return /^[0-9A-Za-z]{12}$/.test(text);
}

/** Builds the record of a token created at `now`, in milliseconds since the epoch. */
export function newToken(
  secret: string,
  owner: string,
  { scopes, expiresAt, name }: Pick<Token, 'scopes' | 'expiresAt' | 'name'>,
  now: number,
): Token {
  return {
    id: mintTokenId(),
    digest: digestSecret(secret),
    owner,
    name,
    scopes,
    createdAt: now,
    expiresAt,
    revokedAt: null,
    lastUsedAt: null,
  };
}

/** True for an owner name: 1 to 128 ASCII letters, digits and `._@+-`, starting with a letter or digit. */
export function isOwner(text: string): boolean {
  return OWNER.test(text);
}

/**
 * Returns the owner name for a subject of an OpenID Connect issuer: issuer, `#`, subject. Neither issuers nor
 * local owner names contain `#`, so two owners never have the same name. Returns undefined unless the subject
 * is 1 to 255 printable ASCII characters (OpenID Connect Core §2).
 */
export function ownerOfSubject(issuer: string, subject: string): string | undefined {
  const owner = `${issuer}#${subject}`;
  return isOwnerOfSubject(owner) ? owner : undefined;
}

/** True for an owner name in the form that `ownerOfSubject` returns. */
export function isOwnerOfSubject(text: string): boolean {
  return SUBJECT_OWNER.test(text);
}

/** True for a valid token name: up to 255 characters without control and format characters. */
export function isTokenName(text: string): boolean {
  return NAME.test(text);
}

/**
 * Parses scopes separated by commas or spaces. Returns them in the order of `scopes`; undefined if one is
 * unknown.
 */
export function parseScopes(text: string): readonly Scope[] | undefined {
  const wanted = text.split(/[\s,]+/).filter((part) => part !== '');
  const known = scopes.filter((scope) => wanted.includes(scope));
  return known.length > 0 && known.length === new Set(wanted).size ? known : undefined;
}

/**
 * Parses the lifetime of a token created at `now`: `90d`, `12h`, `30m` or `never`. Returns the time of expiry in
 * milliseconds since the epoch, null for `never`, undefined for other texts.
 */
export function parseExpires(text: string, now: number): number | null | undefined {
  if (text === 'never') return null;
  const match = /^([1-9][0-9]{0,5})([mhd])$/.exec(text);
  if (match === null) return undefined;
  const unit = match[2] === 'm' ? UNIT_MS.m : match[2] === 'h' ? UNIT_MS.h : UNIT_MS.d;
  return now + Number(match[1]) * unit;
}

/** True if a token is neither revoked nor expired at `now`, in milliseconds since the epoch. */
export function isValid(token: Pick<Token, 'expiresAt' | 'revokedAt'>, now: number): boolean {
  return token.revokedAt === null && (token.expiresAt === null || now < token.expiresAt);
}
