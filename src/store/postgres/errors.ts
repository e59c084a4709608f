import { codeOf, messageOf } from '../../api-errors.ts';
import { BatchRejected, StoreDamaged, StoreUnavailable } from '../store.ts';

/** Serialization failure and deadlock (https://www.postgresql.org/docs/current/errcodes-appendix.html): worth another try. */
const RETRIED = new Set(['40001', '40P01']);

/**
 * Classes and codes that say the server cannot take the statement now: connection exceptions, refused logins (a password
 * on its way to being changed), insufficient resources, operator intervention (shutdown, cancel by timeout), system
 * errors, read-only and aborted transactions, lost locks.
 */
const PASSING_CLASSES = new Set(['08', '28', '53', '57', '58', 'XX']);
const PASSING_CODES = new Set(['25006', '25P02', '25P03', '25P04', '3D000', '40003', '55P03']);

/** A page or an index of the server is broken. */
const DAMAGE_CODES = new Set(['XX001', 'XX002']);

/** The server is no primary (any more): read-only, starting up or shutting down. */
const NOT_PRIMARY_CODES = new Set(['25006', '57P01', '57P02', '57P03']);

/** A unique violation, and the internal error as which Citus tells one that a worker found. */
const UNIQUE_VIOLATION_CODES = new Set(['23505', 'XX000']);

const FEATURE_NOT_SUPPORTED = '0A000';

/** Whether nothing was done and the same may succeed at once. */
export function isWorthRetrying(error: unknown): boolean {
  const first = error instanceof StoreUnavailable ? error.cause : error;
  return RETRIED.has(codeOf(first)) || isStalePlan(first);
}

/**
 * Whether a migration changed the columns that a prepared statement returns ("cached plan must not change result type").
 * The connection is of no more use. By the function in the server that raised it: the message may be translated.
 */
export function isStalePlan(error: unknown): boolean {
  return (
    codeOf(error) === FEATURE_NOT_SUPPORTED &&
    error instanceof Error &&
    'routine' in error &&
    error.routine === 'RevalidateCachedQuery'
  );
}

/** Whether the statement may have met a key that is there already. It did nothing in any case. */
export function mayBeUniqueViolation(error: unknown): boolean {
  return UNIQUE_VIOLATION_CODES.has(codeOf(error));
}

/** Whether Citus cannot run the statement across its shards ("could not run distributed query with FOR UPDATE…"). */
export function isAcrossShards(error: unknown): boolean {
  return codeOf(error) === FEATURE_NOT_SUPPORTED && /\bdistributed\b/.test(messageOf(error));
}

/** Whether the server itself answered with an error (SQLSTATE). */
export function isFromServer(error: unknown): boolean {
  return error instanceof Error && 'severity' in error && /^[0-9A-Z]{5}$/.test(codeOf(error));
}

/** Whether the connection is of no more use, and another host may be the primary now. */
export function isAboutHost(error: unknown): boolean {
  return error instanceof StoreUnavailable || NOT_PRIMARY_CODES.has(codeOf(error));
}

/** What it means that there is no connection, or none any more, whatever the reason. */
export function noConnection(error: unknown): StoreUnavailable {
  return new StoreUnavailable(`no connection to PostgreSQL: ${reasonOf(error)}`, { cause: error });
}

/** What it means that no host gave a connection; of several, each is named with its reason. */
export function noConnectionToAny(hosts: readonly string[], errors: readonly unknown[]): StoreUnavailable {
  if (hosts.length === 1) return noConnection(errors[0]);
  const reasons = hosts.map((host, index) => `${host}: ${reasonOf(errors[index])}`);
  return new StoreUnavailable(`no connection to PostgreSQL: ${reasons.join('; ')}`, { cause: errors.at(-1) });
}

// In the words of pg, it would be a fault in the exchange of messages.
function reasonOf(error: unknown): string {
  const reason = messageOf(error);
  return /client password must be a/.test(reason)
    ? 'the server asks for a password, and the database URL has none'
    : reason;
}

/** What an error of the server means to the callers of the store; any other means what it says. */
export function meaningOf(error: unknown): unknown {
  if (!isFromServer(error)) return error;
  const code = codeOf(error);
  const reason = `PostgreSQL: ${messageOf(error)} (${code})`;
  if (DAMAGE_CODES.has(code)) return new StoreDamaged(reason, { cause: error });
  const isTransient =
    PASSING_CLASSES.has(code.slice(0, 2)) || PASSING_CODES.has(code) || isWorthRetrying(error);
  return isTransient
    ? new StoreUnavailable(reason, { cause: error })
    : new BatchRejected(reason, { cause: error });
}
