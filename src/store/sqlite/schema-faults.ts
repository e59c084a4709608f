import { DatabaseSync } from 'node:sqlite';
import { readPackagedFile } from '../../packaged-files.ts';
import { missingMigrations, whyOtherVersion } from '../migrations.ts';
import { StoreNotOpened } from '../store.ts';
import { appliedMigrations, CREATE_MIGRATIONS, SQLITE_MIGRATIONS } from './migrate.ts';

/** A row of `sqlite_schema`. `sql` is empty for an index that belongs to the definition of its table. */
interface SchemaObject {
  readonly label: string;
  readonly table: string;
  readonly sql: string;
}

/**
 * Returns the faults in the schema of a store: a table, index or trigger of its migrations that is missing or differs, and
 * any other trigger or unique index, which may change or reject what is stored. Other additions are harmless. Returns none for another version.
 */
export function schemaFaults(db: DatabaseSync): readonly string[] {
  if (isOtherVersion(db)) return [];
  const expected = expectedObjects();
  const known = new Set(expected.map(({ label }) => label));
  const tables = new Set(expected.map(({ table }) => table));
  const others = objectsOf(db).filter(
    ({ label, table, sql }) =>
      !known.has(label) &&
      (label.startsWith('trigger ') || (tables.has(table) && /^CREATE UNIQUE /i.test(sql))),
  );
  return [...changedObjects(db), ...others.map(({ label }) => `the ${label} is not part of a store`)];
}

/**
 * Throws StoreNotOpened if a part of the schema is missing or differs: a write could then damage other plants. Compares only
 * `table` and its indexes, if given. Accepts an additional trigger or index.
 */
export function rejectChangedSchema(db: DatabaseSync, file: string, table?: string): void {
  if (isOtherVersion(db)) return;
  const [fault] = changedObjects(db, table);
  if (fault !== undefined)
    throw new StoreNotOpened(
      `cannot write to the store ${file}: ${fault}; see \`plant-store check\`, and repair it or restore a backup`,
    );
}

function isOtherVersion(db: DatabaseSync): boolean {
  return whyOtherVersion(SQLITE_MIGRATIONS, appliedMigrations(db)) !== undefined;
}

function changedObjects(db: DatabaseSync, table?: string): readonly string[] {
  const found = new Map(objectsOf(db).map((object) => [object.label, object]));
  return expectedObjects().flatMap((expected) => {
    if (table !== undefined && expected.table !== table) return [];
    const object = found.get(expected.label);
    const shown = expected.sql === '' ? '' : ` \`${expected.sql.replaceAll(/\s+/g, ' ')};\``;
    if (object === undefined) return [`the ${expected.label} is missing:${shown}`];
    return isSame(object, expected) ? [] : [`the ${expected.label} differs from${shown}`];
  });
}

// Ignores white space and quotes of names: another version of SQLite, or a tool that restores a table, may add them.
function isSame(one: SchemaObject, other: SchemaObject): boolean {
  const [first, second] = [one, other].map(({ table, sql }) => `${table} ${sql}`.replaceAll(/[\s"]/g, ''));
  return first === second;
}

/** Returns the objects that the migrations create, from a database in memory. */
function expectedObjects(): readonly SchemaObject[] {
  const db = new DatabaseSync(':memory:');
  try {
    db.exec(CREATE_MIGRATIONS);
    for (const name of missingMigrations(SQLITE_MIGRATIONS, []))
      db.exec(readPackagedFile(`${SQLITE_MIGRATIONS}${name}`).toString());
    return objectsOf(db);
  } finally {
    db.close();
  }
}

function objectsOf(db: DatabaseSync): readonly SchemaObject[] {
  return db
    .prepare('SELECT type, name, tbl_name, sql FROM sqlite_schema')
    .all()
    .map(({ type, name, tbl_name: table, sql }) => ({
      label: `${type} ${name}`,
      table: String(table),
      sql: String(sql ?? ''),
    }));
}
