import { isUtf8 } from 'node:buffer';
import type { DatabaseSync } from 'node:sqlite';
import { inspectMigrations } from '../migrations.ts';
import { reasonOf, severityOf } from './errors.ts';
import { SQLITE_MIGRATIONS } from './migrate.ts';

/** What is wrong with an embedded store as such: pages, indexes, schema, encoding. Empty for a sound one. */
export async function inspectSqlite(db: DatabaseSync): Promise<readonly string[]> {
  try {
    const damages = db
      .prepare('PRAGMA integrity_check')
      .all()
      .map((row) => String(row.integrity_check))
      .filter((text) => text !== 'ok');
    if (damages.length > 0) return damages;
    const schema = await inspectSchema(db);
    return schema.length > 0 ? schema : inspectEncoding(db);
  } catch (error: unknown) {
    if (severityOf(error) === 'passing') throw error;
    return [reasonOf(error)];
  }
}

/** Whether it is of this version. Empty when it is. */
export async function inspectSchema(db: DatabaseSync): Promise<readonly string[]> {
  const table = db.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'").get();
  if (table === undefined) return ['this is a database of something else, or an empty file'];
  const applied = db.prepare('SELECT name FROM migrations').all();
  return inspectMigrations(
    SQLITE_MIGRATIONS,
    applied.map(({ name }) => String(name)),
  );
}

// SQLite takes text as it comes, and reading it would replace what is not UTF-8 without a word.
function inspectEncoding(db: DatabaseSync): readonly string[] {
  const statement = db.prepare(
    "SELECT owner, id, CAST(owner || name || coalesce(tag, '') AS BLOB) AS bytes FROM plants",
  );
  statement.setReadBigInts(true);
  const faults: string[] = [];
  for (const { owner, id, bytes } of statement.iterate()) {
    if (bytes instanceof Uint8Array && isUtf8(bytes)) continue;
    faults.push(`the plant ${id} of ${owner}: its text is not UTF-8`);
  }
  return faults;
}
