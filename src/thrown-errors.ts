/**
 * Error with a message for the operator: what happened, and what to do. A command prints the message of such an
 * error, and the stack of any other. The log does so too.
 */
export class OperatorError extends Error {}

/** Returns the message of any thrown value. */
export function messageOf(error: unknown): string {
  // Node sets none if all addresses of a host fail.
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}

/**
 * Returns the `code` of an error from Node or a library, such as `ENOENT`. Returns an empty string if the
 * error has no code.
 */
export function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
}
