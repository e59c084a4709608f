/**
 * The error codes of the service: HTTP status × 100 + n. A code never changes its meaning.
 *
 * @example
 * ```ts
 * import { ErrorCode, PlantStoreError } from 'plant-store-client';
 *
 * function isDuplicate(failure: unknown): boolean {
 *   return failure instanceof PlantStoreError && failure.code === ErrorCode.idTaken;
 * }
 * ```
 */
export const ErrorCode = {
  /** a field, parameter or header is invalid; the message names it */
  invalidInput: 40000,
  /** the body is not JSON (RFC 8259), not UTF-8, or nested too deep */
  notJson: 40001,
  /** a plant with this id already exists */
  idTaken: 40002,
  /** the idempotency key was used for another plant */
  keyReused: 40003,
  /** malformed HTTP */
  malformedHttp: 40004,
  /** no credentials */
  noCredentials: 40100,
  /** invalid token: unknown, malformed, expired or revoked */
  invalidToken: 40101,
  /** the token lacks the scope of the operation */
  scopeTooNarrow: 40300,
  /** no such plant */
  noSuchPlant: 40400,
  /** no such route */
  noSuchRoute: 40401,
  /** method not allowed; `Allow` lists the methods that are */
  methodNotAllowed: 40500,
  /** the request took too long to arrive */
  requestTimeout: 40800,
  /** a precondition failed: plants have no entity tags, so only `If-Match: *` can match */
  preconditionFailed: 41200,
  /** the body is too large */
  bodyTooLarge: 41300,
  /** the URI is too long */
  uriTooLong: 41400,
  /** the content type is not JSON, or the body has a `Content-Encoding` */
  unsupportedContent: 41500,
  /** the `Expect` header asks for something other than 100-continue */
  expectationFailed: 41700,
  /** too many requests; `Retry-After` says when to retry */
  tooManyRequests: 42900,
  /** the headers are too large */
  headersTooLarge: 43100,
  /** internal error; only the log of the service says what failed */
  internalError: 50000,
  /** the method is not implemented */
  methodNotImplemented: 50100,
  /** the store is unavailable, or the outcome of the write is unknown; `Retry-After` says when to retry */
  storeUnavailable: 50300,
  /** overloaded; `Retry-After` says when to retry */
  overloaded: 50301,
  /** the identity provider cannot be reached; `Retry-After` says when to retry */
  identityProviderUnreachable: 50302,
} as const;

export type ErrorCode = (typeof ErrorCode)[keyof typeof ErrorCode];
