import { isUtf8 } from 'node:buffer';
import type { DatabaseSync } from 'node:sqlite';
import { plantFields } from '../../plant.ts';
import { inspectMigrations } from '../migrations.ts';
import { reasonOf, severityOf } from './errors.ts';
import { inspectLargePlants, SELECT_PLANTS } from './large-plants.ts';
import { SQLITE_MIGRATIONS } from './migrate.ts';

/** Returns the faults of pages, indexes, schema and encoding. Empty for a sound store. */
export async function inspectSqlite(db: DatabaseSync): Promise<readonly string[]> {
  try {
    const damages = db
      .prepare('PRAGMA integrity_check')
      .all()
      .map((row) => String(row.integrity_check))
      .filter((text) => text !== 'ok');
    if (damages.length > 0) return damages;
    const schema = await inspectSchema(db);
    return schema.length > 0 ? schema : [...inspectLargePlants(db), ...inspectEncoding(db)];
  } catch (error: unknown) {
    if (severityOf(error) === 'transient') throw error;
    return [reasonOf(error)];
  }
}

/** Returns why the schema is not that of this version; empty when it is. */
export async function inspectSchema(db: DatabaseSync): Promise<readonly string[]> {
  const table = db.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'").get();
  if (table === undefined) return ['this file is empty, or the database of another program'];
  const applied = db.prepare('SELECT name FROM migrations').all();
  return inspectMigrations(
    SQLITE_MIGRATIONS,
    applied.map(({ name }) => String(name)),
  );
}

// SQLite does not validate text, and reads as text silently replace invalid UTF-8.
function inspectEncoding(db: DatabaseSync): readonly string[] {
  const text = ['owner', ...plantFields.map((field) => `coalesce(${field}, '')`)].join(' || ');
  const statement = db.prepare(`SELECT owner, id, CAST(${text} AS BLOB) AS bytes FROM (${SELECT_PLANTS})`);
  statement.setReadBigInts(true);
  const faults: string[] = [];
  for (const { owner, id, bytes } of statement.iterate()) {
    if (bytes instanceof Uint8Array && isUtf8(bytes)) continue;
    faults.push(`the plant ${id} of ${owner}: its text is not UTF-8`);
  }
  return faults;
}
