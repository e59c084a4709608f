// cspell:words mdextend mdzeroextend
import { codeOf, messageOf } from '../../thrown-errors.ts';
import {
  isOutcomeUnknown,
  NothingStored,
  StatementRejected,
  StoreDamaged,
  StoreUnavailable,
  withNothingStored,
} from '../store.ts';

/**
 * SQLSTATE codes of errors that are retried: serialization failure and deadlock
 * (https://www.postgresql.org/docs/current/errcodes-appendix.html).
 */
const RETRIED = new Set(['40001', '40P01']);

/**
 * SQLSTATE classes of transient errors: connections, logins (while a password changes), resources, operator
 * intervention (shutdown, timeout), system, internal errors.
 */
const TRANSIENT_CLASSES = new Set(['08', '28', '53', '57', '58', 'XX']);
/**
 * Codes of further transient errors: aborted transaction, timeouts of an idle and of any transaction, missing database,
 * unknown outcome.
 */
const TRANSIENT_CODES = new Set(['25P02', '25P03', '25P04', '3D000', '40003']);

const READ_ONLY = '25006';

const LOCK_NOT_AVAILABLE = '55P03';

/** A table is missing, as while `pg_restore --clean` replaces it. */
const UNDEFINED_TABLE = '42P01';
const UNDEFINED_COLUMN = '42703';
const UNDEFINED_FUNCTION = '42883';

/** The unique key of an ON CONFLICT is missing, as while a restore has not created it yet. */
const MISSING_KEY = '42P10';

/** Codes with which the server rejects a transaction before its commit. */
const NOTHING_STORED_CODES = new Set([READ_ONLY, LOCK_NOT_AVAILABLE, UNDEFINED_TABLE, MISSING_KEY]);

/**
 * Functions of the server that raise errors only before a commit: they assign transaction ids, which stops until a
 * database is vacuumed, and extend tables, which a full disk prevents. On a full disk, a commit can fail too.
 */
const NOTHING_STORED_ROUTINES = new Set([
  'GetNewTransactionId',
  'GetNewMultiXactId',
  'mdextend',
  'mdzeroextend',
]);

/** Codes of a damaged page or index. */
const DAMAGE_CODES = new Set(['XX001', 'XX002']);

/** Codes of a server that is not the primary: read-only, starting up or shutting down. */
const NOT_PRIMARY_CODES = new Set([READ_ONLY, '57P01', '57P02', '57P03']);

const UNIQUE_VIOLATION = '23505';
const INTERNAL_ERROR = 'XX000';
/** A primary key of creations, with the suffix of a shard on Citus. Servers translate the rest of the message. */
const PRIMARY_KEY = /\b(plants|idempotency_keys)_pkey/;

const FEATURE_NOT_SUPPORTED = '0A000';

const SYNTAX_ERROR = '42601';

const INSUFFICIENT_PRIVILEGE = '42501';

/** Also if the account may use no schema of its `search_path`. */
const INVALID_SCHEMA_NAME = '3F000';

/** Also "invalid role OID". */
const UNDEFINED_OBJECT = '42704';

const TOO_MANY_CONNECTIONS = '53300';

const DUPLICATE_TABLE = '42P07';

/** The message of the pool if no connection became free in time. The error has no code. */
export const POOL_TIMEOUT = 'timeout exceeded when trying to connect';

/** The message of the pool if a new connection took too long. The error has no code. */
const CONNECT_TIMEOUT = 'Connection terminated due to connection timeout';

/**
 * True for a conflict with another transaction: a deadlock, a serialization failure, or a prepared statement that a
 * migration made outdated. Nothing changed, and an immediate retry may succeed.
 */
export function isConflict(error: unknown): boolean {
  return RETRIED.has(codeOf(error)) || isStalePlan(error);
}

/**
 * True if a migration changed the columns of a prepared statement ("cached plan must not change result
 * type"). The connection must then be closed.
 */
export function isStalePlan(error: unknown): boolean {
  return codeOf(error) === FEATURE_NOT_SUPPORTED && routineOf(error) === 'RevalidateCachedQuery';
}

/**
 * True if the rights of the session may be outdated: a role that was dropped and created again has a new identity, which
 * only new sessions get.
 */
export function isStaleRole(error: unknown): boolean {
  return [INSUFFICIENT_PRIVILEGE, UNDEFINED_OBJECT].includes(codeOf(error));
}

/** Returns the function of the server that raised an error. Servers translate the message, but not this name. */
function routineOf(error: unknown): string {
  return error instanceof Error && 'routine' in error ? String(error.routine) : '';
}

/** A notice of the server. `routine` is the function that sent it; unlike `message`, servers do not translate it. */
export interface Notice {
  readonly code: string | undefined;
  readonly message: string | undefined;
  readonly hint: string | undefined;
  readonly routine: string | undefined;
}

/**
 * Class of a notice. In `doubt`, the statement may have no effect, or its effect may be lost: the code is that of an
 * error, or a commit stopped waiting for its synchronous standby. After a `warning` the statement has its effect.
 */
export function classOfNotice({ code = '', routine }: Notice): 'doubt' | 'warning' | 'information' {
  if (code.startsWith('00')) return 'information';
  return code.startsWith('01') && routine !== 'SyncRepWaitForLSN' ? 'warning' : 'doubt';
}

export function textOfNotice({ message = '', hint }: Notice): string {
  return hint === undefined ? message : `${message}: ${hint}`;
}

/**
 * True if a creation violated a unique key. Citus may report a violation on a worker as an internal error. Other internal
 * errors of a distributed server may come after the commit.
 */
export function isUniqueViolation(error: unknown): boolean {
  // In a transaction, `withoutCommit` converted an internal error.
  if (error instanceof NothingStored) return isUniqueViolation(error.cause);
  const code = codeOf(error);
  return code === UNIQUE_VIOLATION || (code === INTERNAL_ERROR && PRIMARY_KEY.test(messageOf(error)));
}

/**
 * True if Citus rejects a statement for rows in several shards ("could not run distributed query with FOR
 * UPDATE…").
 */
export function isAcrossShards(error: unknown): boolean {
  return codeOf(error) === FEATURE_NOT_SUPPORTED && /\bdistributed\b/.test(messageOf(error));
}

/** True if the server does not know a statement, or a function or column of the system in it. */
export function isUnsupported(error: unknown): boolean {
  return [FEATURE_NOT_SUPPORTED, SYNTAX_ERROR, UNDEFINED_COLUMN, UNDEFINED_FUNCTION].includes(codeOf(error));
}

/** True if a statement waited for a lock longer than `lock_timeout`. */
export function isLockTimeout(error: unknown): boolean {
  return codeOf(error) === LOCK_NOT_AVAILABLE;
}

/** True if the account may not execute a statement, or create a table in any schema. */
export function isPrivilegeMissing(error: unknown): boolean {
  return [INSUFFICIENT_PRIVILEGE, INVALID_SCHEMA_NAME].includes(codeOf(error));
}

/** True if a statement creates a table or index that exists. */
export function isDuplicateTable(error: unknown): boolean {
  return codeOf(error) === DUPLICATE_TABLE;
}

/** True if the server, or the limit of the account or database, accepts no further connection. */
export function isOutOfConnections(error: unknown): boolean {
  return codeOf(error) === TOO_MANY_CONNECTIONS;
}

/**
 * True if the server rejects a new session, as after a change of the password, but may still serve the open ones. False if
 * it starts up or shuts down: another host may be the primary.
 */
export function isLoginRejected(error: unknown): boolean {
  return isFromServer(error) && !mustCloseConnection(error);
}

/** True if no connection of the pool became free in time, or a new one took too long. */
export function isPoolTimeout(error: unknown): boolean {
  return [POOL_TIMEOUT, CONNECT_TIMEOUT].includes(messageOf(error));
}

/** Creates the error of a request that no connection became free for. */
export function allBusy(error: unknown): Error {
  const text =
    'all connections are busy, and no new one opened in time; look for locks and slow statements in the database, or raise --database-pool-size';
  return new Error(text, { cause: error });
}

/** True for an error that the server sent, with an SQLSTATE code. */
export function isFromServer(error: unknown): boolean {
  return error instanceof Error && 'severity' in error && /^[0-9A-Z]{5}$/.test(codeOf(error));
}

/** The server answers, but is no primary that accepts writes. */
export class NotPrimary extends StoreUnavailable {}

/** The error of a server that replays a write-ahead log (`in_hot_standby`). */
export function inRecovery(): NotPrimary {
  return new NotPrimary('the host is not the primary: it is a standby, or its restore is not finished');
}

/** True if the server answers, but is read-only. */
export function isReadOnly(error: unknown): boolean {
  return error instanceof NotPrimary || codeOf(error) === READ_ONLY;
}

/** True if a host answers that it is a standby, or starts up or shuts down. A standby may accept no connections at all. */
export function isStandby(error: unknown): boolean {
  return error instanceof NotPrimary || NOT_PRIMARY_CODES.has(codeOf(error));
}

/** True if the connection must be closed: it failed, or its host is not the primary. */
export function mustCloseConnection(error: unknown): boolean {
  return error instanceof StoreUnavailable || NOT_PRIMARY_CODES.has(codeOf(error));
}

/** Creates the error of a failed connection. `reason` is the error to quote, if it is not `error`. */
export function noConnection(error: unknown, reason = error): StoreUnavailable {
  return new StoreUnavailable(`no connection to PostgreSQL: ${reasonOf(reason)}`, { cause: error });
}

/**
 * Creates the error for the case that no host gives a connection. With several hosts, its message has the reason of each
 * host tried. `errors[i]` belongs to `hosts[i]`; hosts not tried are holes.
 */
export function noConnectionToAny(hosts: readonly string[], errors: readonly unknown[]): NothingStored {
  // Skips the holes in `errors`.
  const reasons = errors.flatMap((error, index) => `${hosts[index]}: ${reasonOf(error)}`);
  const reason = hosts.length === 1 ? reasonOf(errors[0]) : reasons.join('; ');
  return new NothingStored(`no connection to PostgreSQL: ${reason}`, { cause: errors.at(-1) });
}

/** Remedies for errors that do not name one, by their codes. */
const REMEDIES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'no server listens there; start it, or correct the database URL',
  ENOTFOUND: 'there is no such host; correct the database URL',
};

/**
 * Returns why a connection failed. Rewords the errors for a missing password and user, which pg and the server report as
 * errors of the protocol.
 */
export function reasonOf(error: unknown): string {
  const reason = messageOf(error);
  if (/client password must be a/.test(reason))
    return 'the server asks for a password, and the database URL has none';
  if (/^no PostgreSQL user name/.test(reason)) return 'the database URL names no user, and PGUSER is not set';
  const remedy = REMEDIES[codeOf(error)];
  return remedy === undefined ? reason : `${reason} (${remedy})`;
}

/** Returns the message of an error, of the server with its code. */
export function textOf(error: unknown): string {
  return isFromServer(error) ? `PostgreSQL: ${messageOf(error)} (${codeOf(error)})` : messageOf(error);
}

/** Runs `work`, and rejects with the error that `toStoreError` makes of its error. */
export async function withStoreErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error: unknown) {
    throw toStoreError(error);
  }
}

/**
 * Returns the error of a transaction that began and for which COMMIT was not sent. It leaves no outcome unknown, except
 * that StoreDamaged stays as it is.
 */
export function withoutCommit(error: unknown): unknown {
  const meaning = toStoreError(error);
  return isOutcomeUnknown(meaning) ? withNothingStored(meaning) : error;
}

/** Converts an error of the server to an error of `store.ts`. Returns errors from other sources unchanged. */
export function toStoreError(error: unknown): unknown {
  if (!isFromServer(error)) return error;
  const code = codeOf(error);
  const reason = textOf(error);
  if (DAMAGE_CODES.has(code)) return new StoreDamaged(reason, { cause: error });
  if (NOTHING_STORED_CODES.has(code) || NOTHING_STORED_ROUTINES.has(routineOf(error)) || isConflict(error))
    return new NothingStored(reason, { cause: error });
  return TRANSIENT_CLASSES.has(code.slice(0, 2)) || TRANSIENT_CODES.has(code)
    ? new StoreUnavailable(reason, { cause: error })
    : new StatementRejected(reason, { cause: error });
}
