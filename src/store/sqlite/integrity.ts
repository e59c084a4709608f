import { isUtf8 } from 'node:buffer';
import type { DatabaseSync } from 'node:sqlite';
import { setImmediate } from 'node:timers/promises';
import { plantFields } from '../../plant.ts';
import { OperatorError } from '../../thrown-errors.ts';
import type { Inspection } from '../bulk-store.ts';
import { whyOtherVersion } from '../migrations.ts';
import { ROWS_IN_PAGE, type Row } from '../rows.ts';
import { StoreUnavailable } from '../store.ts';
import { provesDamage, reasonOf, severityOf, whyUnreadable } from './errors.ts';
import { inspectLargePlants, SELECT_PLANTS } from './large-plants.ts';
import { appliedMigrations, isStore, noStoreYet, SQLITE_MIGRATIONS, tablesOf } from './migrate.ts';
import { schemaFaults } from './schema-faults.ts';

/**
 * Checks pages, indexes, schema and encoding. Rejects with StoreNotOpened if the file has no tables, for example after a
 * power cut during the first start, and with StoreUnavailable or the error of SQLite if the file cannot be checked now.
 */
export async function inspectSqlite(db: DatabaseSync, file: string): Promise<Inspection> {
  try {
    const damages = faultsIn(db.prepare('PRAGMA integrity_check').all(), file);
    if (damages.length > 0) return { damages };
    if (tablesOf(db).length === 0) throw noStoreYet(file);
    if (!isStore(db))
      return { damages: ['the file is the database of another program, or lacks a table of a store'] };
    const otherVersion = whyOtherVersion(SQLITE_MIGRATIONS, appliedMigrations(db));
    if (otherVersion !== undefined) return { otherVersion, damages };
    const changes = schemaFaults(db);
    if (changes.length > 0) return { damages: changes };
    return { damages: [...inspectLargePlants(db), ...(await inspectEncoding(db))] };
  } catch (error: unknown) {
    // A full disk, a lock, a disk that cannot be read or a missing descriptor is no fault of the store.
    const isFault = severityOf(error) === 'rejected' || provesDamage(error);
    if (!isFault || error instanceof OperatorError || isOfFileSystem(error)) throw error;
    return { damages: [reasonOf(error)] };
  }
}

/** True for an error of the file system, such as from a read of the program's files, and not of SQLite. */
function isOfFileSystem(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error;
}

/**
 * Returns the faults in the rows of `PRAGMA integrity_check`. SQLite reports many as lines of one text, under a title.
 * Throws StoreUnavailable if the disk could not be read.
 */
export function faultsIn(rows: readonly Row[], file: string): readonly string[] {
  const faults = rows
    .flatMap((row) => String(row.integrity_check).split('\n'))
    .filter((text) => text !== 'ok' && !text.startsWith('*** '));
  const reason = faults.map(whyUnreadable).find((why) => why !== undefined);
  if (reason !== undefined) throw new StoreUnavailable(`${file} cannot be read: ${reason}`);
  return faults;
}

/** Returns the rows with invalid UTF-8: SQLite does not validate text, and Node silently replaces such bytes. */
async function inspectEncoding(db: DatabaseSync): Promise<readonly string[]> {
  return [
    ...(await invalidTexts(
      db,
      SELECT_PLANTS,
      ['owner', ...plantFields],
      ({ id, owner }) => `plant ${id} of ${owner}`,
    )),
    ...(await invalidTexts(
      db,
      'SELECT * FROM tokens',
      ['owner', 'id', 'name', 'scopes'],
      ({ id }) => `token ${id}`,
    )),
    ...(await invalidTexts(
      db,
      'SELECT * FROM idempotency_keys',
      ['owner', 'key', 'outcome'],
      ({ key, owner }) => `idempotency key ${key} of ${owner}`,
    )),
  ];
}

async function invalidTexts(
  db: DatabaseSync,
  rows: string,
  columns: readonly string[],
  nameOf: (row: Readonly<Record<string, unknown>>) => string,
): Promise<readonly string[]> {
  const texts = columns.map((column) => `coalesce(${column}, '')`);
  const joined = texts.join(' || ');
  // The separator keeps the invalid ends of two texts from forming a valid character. SQLite skips rows of printable ASCII
  // faster than Node reads them. GLOB ends at U+0000.
  const statement = db.prepare(
    `SELECT *, CAST(${texts.join(' || char(10) || ')} AS BLOB) AS bytes FROM (${rows})
      WHERE ${joined} GLOB '*[^ -~]*' OR instr(${joined}, char(0))`,
  );
  statement.setReadBigInts(true);
  const faults: string[] = [];
  let rowsRead = 0;
  for (const row of statement.iterate()) {
    rowsRead += 1;
    // Lets signals be handled.
    if (rowsRead % ROWS_IN_PAGE === 0) await setImmediate();
    if (row.bytes instanceof Uint8Array && isUtf8(row.bytes)) continue;
    faults.push(`the ${nameOf(row)}: its text is not UTF-8`);
  }
  return faults;
}
