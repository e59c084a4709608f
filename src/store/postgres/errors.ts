import { codeOf, messageOf } from '../../api-errors.ts';
import { BatchRejected, StoreDamaged, StoreUnavailable } from '../store.ts';

/** Retried: serialization failure and deadlock (https://www.postgresql.org/docs/current/errcodes-appendix.html). */
const RETRIED = new Set(['40001', '40P01']);

/**
 * Transient errors. Classes: connection exceptions, rejected logins (while a password changes), insufficient resources,
 * operator intervention (shutdown, cancel by timeout), system errors. Codes: read-only and aborted transactions, lost
 * locks.
 */
const TRANSIENT_CLASSES = new Set(['08', '28', '53', '57', '58', 'XX']);
const TRANSIENT_CODES = new Set(['25006', '25P02', '25P03', '25P04', '3D000', '40003', '55P03']);

/** A page or an index of the server is broken. */
const DAMAGE_CODES = new Set(['XX001', 'XX002']);

/** The server is not the primary: read-only, starting up or shutting down. */
const NOT_PRIMARY_CODES = new Set(['25006', '57P01', '57P02', '57P03']);

/** A unique violation, and the internal error that Citus returns for one on a worker. */
const UNIQUE_VIOLATION_CODES = new Set(['23505', 'XX000']);

const FEATURE_NOT_SUPPORTED = '0A000';

/** True when nothing changed and an immediate retry may succeed. */
export function isWorthRetrying(error: unknown): boolean {
  const first = error instanceof StoreUnavailable ? error.cause : error;
  return RETRIED.has(codeOf(first)) || isStalePlan(first);
}

/**
 * True when a migration changed the columns of a prepared statement ("cached plan must not change result type"). The
 * connection must be closed. Checks the name of the server function that raised the error, since the server may
 * translate the message.
 */
export function isStalePlan(error: unknown): boolean {
  return (
    codeOf(error) === FEATURE_NOT_SUPPORTED &&
    error instanceof Error &&
    'routine' in error &&
    error.routine === 'RevalidateCachedQuery'
  );
}

/** True when the statement may have hit an existing key. It changed nothing. */
export function mayBeUniqueViolation(error: unknown): boolean {
  return UNIQUE_VIOLATION_CODES.has(codeOf(error));
}

/** True when Citus cannot run the statement across its shards ("could not run distributed query with FOR UPDATE…"). */
export function isAcrossShards(error: unknown): boolean {
  return codeOf(error) === FEATURE_NOT_SUPPORTED && /\bdistributed\b/.test(messageOf(error));
}

/** True for an error from the server (SQLSTATE). */
export function isFromServer(error: unknown): boolean {
  return error instanceof Error && 'severity' in error && /^[0-9A-Z]{5}$/.test(codeOf(error));
}

/** True when the connection must be closed and another host may be the primary. */
export function isAboutHost(error: unknown): boolean {
  return error instanceof StoreUnavailable || NOT_PRIMARY_CODES.has(codeOf(error));
}

/** The error for a missing or lost connection. */
export function noConnection(error: unknown): StoreUnavailable {
  return new StoreUnavailable(`no connection to PostgreSQL: ${reasonOf(error)}`, { cause: error });
}

/** The error when no host accepts a connection. Of several hosts it names each with its reason. */
export function noConnectionToAny(hosts: readonly string[], errors: readonly unknown[]): StoreUnavailable {
  if (hosts.length === 1) return noConnection(errors[0]);
  const reasons = hosts.map((host, index) => `${host}: ${reasonOf(errors[index])}`);
  return new StoreUnavailable(`no connection to PostgreSQL: ${reasons.join('; ')}`, { cause: errors.at(-1) });
}

// pg reports a missing password as a protocol error.
function reasonOf(error: unknown): string {
  const reason = messageOf(error);
  return /client password must be a/.test(reason)
    ? 'the server asks for a password, and the database URL has none'
    : reason;
}

/** Converts an error of the server to one of `store.ts`. Other errors are not changed. */
export function meaningOf(error: unknown): unknown {
  if (!isFromServer(error)) return error;
  const code = codeOf(error);
  const reason = `PostgreSQL: ${messageOf(error)} (${code})`;
  if (DAMAGE_CODES.has(code)) return new StoreDamaged(reason, { cause: error });
  const isTransient =
    TRANSIENT_CLASSES.has(code.slice(0, 2)) || TRANSIENT_CODES.has(code) || isWorthRetrying(error);
  return isTransient
    ? new StoreUnavailable(reason, { cause: error })
    : new BatchRejected(reason, { cause: error });
}
