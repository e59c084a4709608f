import { dirname } from 'node:path';
import { codeOf, messageOf } from '../../api-errors.ts';
import { StoreNotOpened } from '../store.ts';

/** Primary result codes (https://sqlite.org/rescode.html); an extended code carries its primary one in the low byte. */
const SQLITE_BUSY = 5;
const SQLITE_LOCKED = 6;
const SQLITE_NOMEM = 7;
const SQLITE_READONLY = 8;
const SQLITE_IOERR = 10;
const SQLITE_CORRUPT = 11;
const SQLITE_FULL = 13;
const SQLITE_CANTOPEN = 14;
const SQLITE_TOOBIG = 18;
const SQLITE_NOTADB = 26;

/** Extended ones: a write that found no room (a quota, a limit of the process); nothing of it counts before its fsync. */
const SQLITE_IOERR_WRITE = 10 | (3 << 8);

/** The file of shared memory could not grow, which a full disk causes too. */
const SQLITE_IOERR_SHMSIZE = 10 | (19 << 8);
const PASSING_EXTENDED = new Set([SQLITE_IOERR_WRITE, SQLITE_IOERR_SHMSIZE]);

const PASSING = new Set([
  SQLITE_BUSY,
  SQLITE_LOCKED,
  SQLITE_NOMEM,
  SQLITE_READONLY,
  SQLITE_FULL,
  SQLITE_CANTOPEN,
]);
const FATAL = new Set([SQLITE_IOERR, SQLITE_CORRUPT, SQLITE_NOTADB]);

/**
 * What an error of SQLite means for the service: `passing`, nothing was done and a later try may succeed (a full disk, a lock);
 * `fatal`, neither the file nor the outcome can be trusted any more (a failed fsync, a corrupt page);
 * `refused`, something in the request itself.
 */
export type Severity = 'passing' | 'fatal' | 'refused';

export function severityOf(error: unknown): Severity {
  const code = resultCodeOf(error);
  if (code === undefined) return 'refused';
  if (PASSING.has(code & 0xff) || PASSING_EXTENDED.has(code)) return 'passing';
  return FATAL.has(code & 0xff) ? 'fatal' : 'refused';
}

/** Whether another connection holds a lock, which it will let go of. */
export function isLocked(error: unknown): boolean {
  return hasCode(error, [SQLITE_BUSY, SQLITE_LOCKED]);
}

/** Whether a value exceeded `limits.length` of the connection. */
export function isTooBig(error: unknown): boolean {
  return hasCode(error, [SQLITE_TOOBIG]);
}

/** Whether this user may not write what SQLite writes even to read: the file, its folder, what lies beside it. */
export function isForbidden(error: unknown): boolean {
  return hasCode(error, [SQLITE_CANTOPEN, SQLITE_READONLY]) || ['EACCES', 'EROFS'].includes(codeOf(error));
}

function hasCode(error: unknown, primary: readonly number[]): boolean {
  const code = resultCodeOf(error);
  return code !== undefined && primary.includes(code & 0xff);
}

/** The extended result code; undefined for an error that is not of SQLite. */
function resultCodeOf(error: unknown): number | undefined {
  return error instanceof Error && 'errcode' in error && typeof error.errcode === 'number'
    ? error.errcode
    : undefined;
}

/** The reason an operator reads: SQLite's message with its extended result code. */
export function reasonOf(error: unknown): string {
  if (error instanceof Error && 'syscall' in error && error.syscall === 'mkdir' && 'path' in error)
    return `the folder ${String(error.path)} cannot be made (${codeOf(error)})`;
  const code = resultCodeOf(error);
  return code === undefined ? messageOf(error) : `${messageOf(error)} (SQLite code ${code})`;
}

function reasonOfPath(error: unknown, file: string): string | undefined {
  if (!(error instanceof Error && 'syscall' in error && error.syscall === 'open')) return undefined;
  switch (codeOf(error)) {
    case 'EISDIR':
      return 'it names a folder; name a file in it';
    case 'ENAMETOOLONG':
      return 'its name is too long';
    case 'ENOENT':
      return 'no file can be made there';
    case 'ENOTDIR':
      return `${dirname(file)} is no folder`;
    default:
      return undefined;
  }
}

/** What keeps a file from being opened as a store, in words for the operator. */
export function notOpened(file: string, error: unknown): StoreNotOpened {
  if (error instanceof StoreNotOpened) return error;
  const need = isForbidden(error) ? '; the file and its folder must be writable by this user' : '';
  return new StoreNotOpened(
    `cannot open the store ${file}: ${reasonOfPath(error, file) ?? reasonOf(error)}${need}`,
    { cause: error },
  );
}
