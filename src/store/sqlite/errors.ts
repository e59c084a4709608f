import { accessSync, closeSync, constants, existsSync, openSync, rmSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { codeOf, messageOf } from '../../thrown-errors.ts';
import { StoreNotOpened, StoreUnavailable } from '../store.ts';

/**
 * SQLite's primary result codes (https://sqlite.org/rescode.html). The low byte of an extended result code is
 * its primary code.
 */
const SQLITE_ERROR = 1;
const SQLITE_BUSY = 5;
const SQLITE_LOCKED = 6;
const SQLITE_NOMEM = 7;
const SQLITE_READONLY = 8;
const SQLITE_IOERR = 10;
const SQLITE_CORRUPT = 11;
const SQLITE_FULL = 13;
const SQLITE_CANTOPEN = 14;
const SQLITE_PROTOCOL = 15;
const SQLITE_TOOBIG = 18;
const SQLITE_NOTADB = 26;

/**
 * Extended result code: a write failed, because a quota or a process limit left no space, or the disk is faulty. Nothing
 * was committed, since the write failed before the fsync of the commit.
 */
const SQLITE_IOERR_WRITE = 10 | (3 << 8);

/** Extended result code: the shared-memory file could not grow, for example because the disk is full. */
const SQLITE_IOERR_SHMSIZE = 10 | (19 << 8);

/** Extended result code: a file is shorter than its header or index says. */
const SQLITE_IOERR_SHORT_READ = 10 | (2 << 8);

/** Max bytes of a path: SQLite's limits are 512 and, on Windows, 1040 bytes with the `-journal` that it adds. */
export const MAX_PATH_BYTES = process.platform === 'win32' ? 1_032 : 504;

/** Max bytes of the name of a new file: SQLite adds `-journal`, and all usual file systems take 255. */
const MAX_NAME_BYTES = 255 - '-journal'.length;

const CHECK_DISK = 'check the disk, and the log of the kernel';

/** Codes of the file system for a file that this user may not write. EPERM: it is immutable. */
const FORBIDDEN = ['EACCES', 'EPERM', 'EROFS'];

const MUST_BE_WRITABLE = 'the file and its folder must be writable by this user';
const IS_READ_ONLY =
  'mount its file system for writing; if the kernel made it read-only, the log of the kernel says why';

/** Causes and remedies that SQLite's message does not name, by extended or primary result code. */
const HINTS: ReadonlyMap<number, string> = new Map([
  [SQLITE_BUSY, 'another process writes to it, such as a second service or a copy; end it'],
  [SQLITE_FULL, 'free space on the disk or raise the quota'],
  [SQLITE_READONLY, MUST_BE_WRITABLE],
  [SQLITE_IOERR, CHECK_DISK],
  // For a failed read, SQLite reports this code too (https://sqlite.org/rescode.html#ioerr_corruptfs).
  [
    SQLITE_CORRUPT,
    'a failed read of the disk looks the same, so look into the log of the kernel before you restore a backup',
  ],
  [
    SQLITE_IOERR_WRITE,
    'free space on the disk, or raise the quota or the file size limit (ulimit -f); if there is space, check the disk, and whether the kernel made its file system read-only',
  ],
  [SQLITE_IOERR_SHMSIZE, 'free space on the disk or raise the quota'],
  [SQLITE_NOTADB, 'name the file of a store, or restore a backup'],
  [SQLITE_IOERR_SHORT_READ, 'a file of the store was cut off, or its -wal removed while in use'],
]);

const TRANSIENT = new Set([
  SQLITE_BUSY,
  SQLITE_LOCKED,
  SQLITE_READONLY,
  SQLITE_FULL,
  SQLITE_CANTOPEN,
  SQLITE_PROTOCOL,
]);
const FATAL = new Set([SQLITE_IOERR, SQLITE_CORRUPT, SQLITE_NOTADB]);

// SQLITE_ERROR: a table without a column of the program's SQL, or the JSON of a large plant is malformed.
const DAMAGE = new Set([SQLITE_ERROR, SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_IOERR_SHORT_READ]);

/**
 * Severity of a SQLite error:
 * - `transient`: nothing changed, and a retry may succeed (a full disk, a lock).
 * - `uncertain`: a commit was written and synced, but SQLite could not index it: the shared-memory file could not grow,
 *   or memory was short. No reader sees it. A crash can bring it back, unless a later commit has overwritten it.
 * - `fatal`: the file and the outcome are unreliable (a failed fsync, a corrupt page).
 * - `rejected`: any other error, also one that is not of SQLite. Nothing changed.
 */
export type Severity = 'transient' | 'uncertain' | 'fatal' | 'rejected';

export function severityOf(error: unknown): Severity {
  const code = resultCodeOf(error);
  if (code === undefined) return 'rejected';
  if (code === SQLITE_IOERR_SHMSIZE || (code & 0xff) === SQLITE_NOMEM) return 'uncertain';
  if (TRANSIENT.has(code & 0xff) || code === SQLITE_IOERR_WRITE) return 'transient';
  return FATAL.has(code & 0xff) ? 'fatal' : 'rejected';
}

/** True if the error shows that the file is damaged. Any other error, such as one of the disk, may end without a repair. */
export function provesDamage(error: unknown): boolean {
  const code = resultCodeOf(error);
  return code !== undefined && (DAMAGE.has(code) || DAMAGE.has(code & 0xff));
}

/** Returns why a fault that `PRAGMA integrity_check` reports is not of the file, but of the disk; otherwise undefined. */
export function whyUnreadable(fault: string): string | undefined {
  const code = Number(/ error code=(\d+)$/.exec(fault)?.[1]);
  const isOfDisk = (code & 0xff) === SQLITE_IOERR && code !== SQLITE_IOERR_SHORT_READ;
  return isOfDisk ? `${fault}: ${CHECK_DISK}` : undefined;
}

export function isLocked(error: unknown): boolean {
  return hasCode(error, [SQLITE_BUSY, SQLITE_LOCKED]);
}

/** True if a value exceeds the size limit of the connection (`limits.length`). */
export function isTooBig(error: unknown): boolean {
  return hasCode(error, [SQLITE_TOOBIG]);
}

/**
 * True if this user may not write to the file, its folder, or its `-wal` or `-shm` file. SQLite writes to
 * these files even for reads.
 */
export function isForbidden(error: unknown): boolean {
  return hasCode(error, [SQLITE_CANTOPEN, SQLITE_READONLY]) || FORBIDDEN.includes(codeOf(error));
}

/** True if SQLite reports the error. */
export function isFromSqlite(error: unknown): boolean {
  return resultCodeOf(error) !== undefined;
}

function hasCode(error: unknown, primary: readonly number[]): boolean {
  const code = resultCodeOf(error);
  return code !== undefined && primary.includes(code & 0xff);
}

/** Returns the extended result code; undefined for an error that is not from SQLite. */
function resultCodeOf(error: unknown): number | undefined {
  return error instanceof Error && 'errcode' in error && typeof error.errcode === 'number'
    ? error.errcode
    : undefined;
}

/** Reason of an error for the operator: SQLite's message with its extended result code, and a hint if there is one. */
export function reasonOf(error: unknown): string {
  if (error instanceof Error && 'syscall' in error && error.syscall === 'mkdir' && 'path' in error)
    return `the folder ${String(error.path)} cannot be created (${codeOf(error)})`;
  if (codeOf(error) === 'ERR_WORKER_INIT_FAILED') return reasonOfThread(messageOf(error));
  const code = resultCodeOf(error);
  if (code === undefined) return messageOf(error);
  const hint = HINTS.get(code) ?? HINTS.get(code & 0xff);
  return `${messageOf(error)} (SQLite code ${code})${hint === undefined ? '' : `: ${hint}`}`;
}

function reasonOfThread(message: string): string {
  const limit = /\bE[MN]FILE$/.test(message)
    ? 'open files (ulimit -n, or LimitNOFILE of the unit)'
    : 'processes and threads of this user or container';
  return `no thread can be started (${message}); raise the limit on ${limit}`;
}

/**
 * Throws the error of the file system for a path, without links, that is too long for SQLite, and for a new file whose name
 * is. An existing store needs no `-journal`.
 */
export function rejectLongPath(path: string): void {
  const isNameShort = Buffer.byteLength(basename(path)) <= MAX_NAME_BYTES || existsSync(path);
  if (Buffer.byteLength(path) <= MAX_PATH_BYTES && isNameShort) return;
  throw Object.assign(new Error('SQLite cannot open this path'), { code: 'ENAMETOOLONG', syscall: 'open' });
}

function reasonOfPath(error: unknown, file: string): string | undefined {
  if (!(error instanceof Error && 'syscall' in error && error.syscall === 'open')) return undefined;
  switch (codeOf(error)) {
    case 'EISDIR':
      return 'it is a folder; name a file in it';
    case 'ENAMETOOLONG':
      return `its name is too long, also with the -journal that SQLite adds, or its path, which can have ${MAX_PATH_BYTES} bytes`;
    case 'ENOSPC':
    case 'EDQUOT':
      return 'no file can be created next to it: free space or inodes on the disk, or raise the quota';
    case 'ENOENT':
      return 'no file can be created in this folder';
    case 'ENOTDIR':
      return `${dirname(file)} is not a folder`;
    case 'ELOOP':
      return 'its symbolic links form a loop';
    default:
      return undefined;
  }
}

/** Error of a store that was opened, with the reason for the operator. */
export function storeFailed(file: string, reason: string): StoreUnavailable {
  return new StoreUnavailable(`the store ${file} failed: ${reason}`);
}

function remedyOf(error: unknown): string {
  const code = codeOf(error);
  if (hasCode(error, [SQLITE_CANTOPEN]) || code === 'EIO') return `: ${CHECK_DISK}`;
  if (code === 'EROFS') return `; ${IS_READ_ONLY}`;
  return FORBIDDEN.includes(code) ? `; ${MUST_BE_WRITABLE}` : '';
}

/** Error for a file that cannot be opened as a store, with a message for the operator. */
export function notOpened(file: string, error: unknown): StoreNotOpened {
  if (error instanceof StoreNotOpened) return error;
  const mayName = hasCode(error, [SQLITE_CANTOPEN, SQLITE_READONLY]);
  const cause = (mayName ? whyNotWritable(file) : undefined) ?? error;
  return new StoreNotOpened(
    `cannot open the store ${file}: ${reasonOfPath(cause, file) ?? reasonOf(cause)}${remedyOf(cause)}`,
    { cause: error },
  );
}

/**
 * Returns the error of the file system that SQLite does not name; undefined if the files of a store can be written and a
 * new one created. Does not open existing files: closing one would release the locks of this process.
 */
export function whyNotWritable(file: string): unknown {
  try {
    for (const ending of ['', '-wal', '-shm'])
      if (existsSync(`${file}${ending}`)) accessSync(`${file}${ending}`, constants.W_OK);
    // Its ending is as long as `-wal` and `-shm`.
    const probe = `${file}-new`;
    closeSync(openSync(probe, 'wx', 0o600));
    rmSync(probe);
    return undefined;
  } catch (error: unknown) {
    return codeOf(error) === 'EEXIST' ? undefined : error;
  }
}
