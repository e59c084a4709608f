/**
 * Error with a message for the operator: what happened, and what to do. A command prints the message of such an
 * error, and the stack of any other.
 */
export class OperatorError extends Error {}
