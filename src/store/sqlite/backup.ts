import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { backup, type DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { OperatorError } from '../../thrown-errors.ts';
import { StoreNotOpened, StoreUnavailable } from '../store.ts';
import { openForReading } from './connection.ts';
import { notOpened, provesDamage, reasonOf, rejectLongPath } from './errors.ts';
import { openLongReading } from './files/long-reading.ts';
import { withoutLinks } from './files/store-path.ts';
import { faultsIn } from './integrity.ts';
import { isStore, tablesOf } from './migrate.ts';
import { schemaFaults } from './schema-faults.ts';

const PAGES_AT_ONCE = 256;

/**
 * Script of the thread that checks a copy. A read-only connection would not check the rules of the tables, and without
 * `mode=rw` it would create the file again if a signal has just removed it (https://sqlite.org/uri.html).
 */
const CHECK = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { DatabaseSync } = require('node:sqlite');
  const db = new DatabaseSync(new URL('?mode=rw', workerData));
  const rows = db.prepare('PRAGMA integrity_check').all();
  db.close();
  parentPort.postMessage(rows);
`;

interface BackupOptions {
  readonly file: string;
  /** Empty file for the copy. */
  readonly to: string;
  readonly onProgress: (done: number, total: number) => void;
  /** Throws if `to` is no longer that file. */
  readonly checkTarget: () => void;
}

/**
 * Copies a snapshot of an embedded store to an empty file and verifies the copy. Clients may write to the store meanwhile.
 * Rejects with StoreNotOpened if the store cannot be read, with StoreUnavailable if the copy fails, cannot be checked, is
 * damaged, or has more or fewer rows than the store, and with the errors of `LongReading`, `rejectLongPath` and `checkTarget`.
 */
export async function backUpSqlite(options: BackupOptions): Promise<void> {
  const { file, to } = options;
  rejectLongPath(withoutLinks(to));
  try {
    const { db, read, close } = openLongReading(file);
    await read(() => copyAndVerify(db, options)).finally(close);
  } catch (error: unknown) {
    throw error instanceof OperatorError ? error : notOpened(file, error);
  }
}

async function copyAndVerify(
  db: DatabaseSync,
  { file, to, onProgress, checkTarget }: BackupOptions,
): Promise<void> {
  // Without this read transaction, each write of another connection would restart the backup.
  db.exec('BEGIN');
  if (!isStore(db))
    throw new StoreNotOpened(
      `${file} is no store: it is empty, or the database of another program; name the file of a store with --database-url (DATABASE_URL)`,
    );
  const rows = countRows(db);
  checkTarget();
  await backup(db, to, {
    rate: PAGES_AT_ONCE,
    progress: ({ totalPages, remainingPages }) => onProgress(totalPages - remainingPages, totalPages),
  }).catch((error: unknown) => {
    throw new StoreUnavailable(`the store cannot be copied to ${to}: ${reasonOf(error)}`, { cause: error });
  });
  checkTarget();
  await verify(to, rows).catch((error: unknown) => {
    if (error instanceof OperatorError) throw error;
    if (provesDamage(error)) throw damagedBackup(reasonOf(error));
    throw new StoreUnavailable(`the backup cannot be checked: ${reasonOf(error)}`, { cause: error });
  });
}

async function verify(file: string, expected: string): Promise<void> {
  // On another thread, so that this one handles signals: the check of a large file takes minutes. A URL would take `..`
  // after a link for the folder of the link.
  const [result] = await once(
    new Worker(CHECK, { eval: true, workerData: pathToFileURL(withoutLinks(file)).href }),
    'message',
  );
  rejectFaulty(faultsIn(result, file));
  const db = openForReading(file);
  try {
    rejectFaulty(schemaFaults(db));
    const rows = countRows(db);
    if (rows !== expected) {
      throw new StoreUnavailable(
        `the backup is wrong: it has ${rows}, the store ${expected}; make another backup`,
      );
    }
  } finally {
    db.close();
    // Removes the empty files that SQLite created when it opened the copy.
    await Promise.all([rm(`${file}-wal`, { force: true }), rm(`${file}-shm`, { force: true })]);
  }
}

function rejectFaulty([fault]: readonly string[]): void {
  if (fault !== undefined) throw damagedBackup(fault);
}

function damagedBackup(fault: string): StoreUnavailable {
  return new StoreUnavailable(`the backup is damaged: ${fault}; run \`plant-store check\` on the store`);
}

/** Counts the rows of each table: `630 plants, 1 tokens`. */
function countRows(db: DatabaseSync): string {
  return tablesOf(db)
    .toSorted()
    .map((table) => `${db.prepare(`SELECT count(*) AS count FROM "${table}"`).get()?.count} ${table}`)
    .join(', ');
}
