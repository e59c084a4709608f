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

/** A unique index, also one that belongs to the definition of its table. Its expressions are no columns. */
interface UniqueIndex {
  readonly name: string;
  readonly table: string;
  readonly columns: readonly string[];
}

interface Schema {
  readonly objects: readonly SchemaObject[];
  readonly uniqueIndexes: readonly UniqueIndex[];
}

/**
 * Returns the faults in the schema of a store: a table, index or trigger of its migrations that is missing or differs, and
 * any other trigger or unique index, which may change or reject what is stored. A unique index with all columns of a key and
 * other additions are harmless. Returns none for another version.
 */
export function schemaFaults(db: DatabaseSync): readonly string[] {
  if (isOtherVersion(db)) return [];
  const expected = expectedSchema();
  const known = new Set(expected.objects.map(({ label }) => label));
  const triggers = objectsOf(db)
    .map(({ label }) => label)
    .filter((label) => label.startsWith('trigger ') && !known.has(label));
  // An index of the definition of a table makes that table differ.
  const indexes = uniqueIndexesOf(db)
    .filter((index) => !index.name.startsWith('sqlite_') && canReject(index, expected.uniqueIndexes))
    .map(({ name }) => `unique index ${name}`);
  return [
    ...changedObjects(db, expected.objects),
    ...[...triggers, ...indexes].map((label) => `the ${label} is not part of a store`),
  ];
}

/** True if a unique index is on a table of the store and lacks a column of each key of this table. */
function canReject({ table, columns }: UniqueIndex, known: readonly UniqueIndex[]): boolean {
  const keys = known.filter((key) => key.table === table);
  return keys.length > 0 && !keys.some((key) => key.columns.every((column) => columns.includes(column)));
}

/**
 * Throws StoreNotOpened if a part of the schema is missing or differs: a write could then damage other plants. Compares only
 * `table` and its indexes, if given. Accepts an additional trigger or index.
 */
export function rejectChangedSchema(db: DatabaseSync, file: string, table?: string): void {
  if (isOtherVersion(db)) return;
  const [fault] = changedObjects(db, expectedSchema().objects, table);
  if (fault !== undefined)
    throw new StoreNotOpened(
      `cannot write to the store ${file}: ${fault}; see \`plant-store check\`, and repair it or restore a backup`,
    );
}

function isOtherVersion(db: DatabaseSync): boolean {
  return whyOtherVersion(SQLITE_MIGRATIONS, appliedMigrations(db)) !== undefined;
}

function changedObjects(
  db: DatabaseSync,
  expectedObjects: readonly SchemaObject[],
  table?: string,
): readonly string[] {
  const found = new Map(objectsOf(db).map((object) => [object.label, object]));
  return expectedObjects.flatMap((expected) => {
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

/** Returns the schema that the migrations create, from a database in memory. */
function expectedSchema(): Schema {
  const db = new DatabaseSync(':memory:');
  try {
    db.exec(CREATE_MIGRATIONS);
    for (const name of missingMigrations(SQLITE_MIGRATIONS, []))
      db.exec(readPackagedFile(`${SQLITE_MIGRATIONS}${name}`).toString());
    return { objects: objectsOf(db), uniqueIndexes: uniqueIndexesOf(db) };
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

function uniqueIndexesOf(db: DatabaseSync): readonly UniqueIndex[] {
  return db
    .prepare(
      `SELECT list.name AS name, tables.name AS of, coalesce(group_concat(info.name), '') AS columns
         FROM sqlite_schema AS tables, pragma_index_list(tables.name) AS list, pragma_index_info(list.name) AS info
        WHERE tables.type = 'table' AND list."unique" GROUP BY list.name, tables.name`,
    )
    .all()
    .map(({ name, of, columns }) => ({
      name: String(name),
      table: String(of),
      columns: String(columns).split(','),
    }));
}
