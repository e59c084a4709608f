/**
 * All errors that the service returns, with their meanings for the OpenAPI document and docs/errors.md. The message to a client
 * is at each `new ApiError(CODE`. A code is the HTTP status (RFC 9110 §15) × 100 plus a number, such as
 * 40001. A code never changes its meaning. An unexpected error is returned as 50000.
 */
export const errorMeanings = {
  40000: 'a field, parameter or header is invalid; the message names it',
  40001: 'the body is not JSON (RFC 8259), not UTF-8, or nested too deep',
  40002: 'a plant with this id already exists',
  40003: 'the idempotency key was used for another plant',
  40004: 'malformed HTTP',
  40100: 'no credentials',
  40101: 'invalid token: unknown, malformed, expired or revoked',
  40300: 'the token lacks the scope of the operation',
  40400: 'no such plant',
  40401: 'no such route',
  40500: 'method not allowed; `Allow` lists the methods that are',
  40800: 'the request took too long to arrive',
  41200: 'a precondition failed: plants have no entity tags, so only `If-Match: *` can match',
  41300: 'the body is too large',
  41400: 'the URI is too long',
  41500: 'the content type is not JSON, or the body has a `Content-Encoding`',
  41700: 'the `Expect` header asks for something other than 100-continue',
  42900: 'too many requests; `Retry-After` says when to retry',
  43100: 'the headers are too large',
  50000: 'internal error; only the log of the service says what failed',
  50100: 'the method is not implemented',
  50300: 'the store is unavailable, or the outcome of the write is unknown; `Retry-After` says when to retry',
  50301: 'overloaded; `Retry-After` says when to retry',
  50302: 'the identity provider cannot be reached; `Retry-After` says when to retry',
} as const;

export type ErrorCode = keyof typeof errorMeanings;

export const errorCodes = Object.keys(errorMeanings).map(Number) as readonly ErrorCode[];

/** Returns the HTTP status of an error code. */
export function statusOf(code: ErrorCode): number {
  return Math.floor(code / 100);
}

/** Headers that an error can add to its response. */
export type ErrorHeaders = Readonly<
  Partial<Record<'allow' | 'connection' | 'retry-after' | 'www-authenticate', string>>
>;

/** An error to return to the client: its code, a message that says what is valid, and extra headers. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly code: ErrorCode;
  readonly headers: ErrorHeaders;
  /** For a 50301: `owner` if one owner or address has used up its share of a limit; undefined for a total limit. */
  readonly limit: 'owner' | undefined = undefined;

  constructor(code: ErrorCode, message: string, headers: ErrorHeaders = {}) {
    super(message);
    this.code = code;
    this.headers = headers;
  }
}

/**
 * The error 50301 for the share that one owner or address has of a limit. Requests of others may still be served, so the log and
 * metrics distinguish it from a total limit.
 */
export class ShareExceeded extends ApiError {
  override readonly limit = 'owner';

  constructor(message: string, headers: ErrorHeaders) {
    super(50301, message, headers);
  }
}
