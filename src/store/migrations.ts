import { readdir, readFile } from 'node:fs/promises';
import { Umzug } from 'umzug';
import { StoreNotOpened } from '../store.ts';

/** What an engine lends to the migrations while it holds a transaction that keeps others out. */
export interface MigrationTarget {
  run(sql: string): Promise<void> | void;
  applied(): Promise<string[]> | string[];
  record(name: string): Promise<void> | void;
}

/**
 * Applies the SQL files of a folder that a store has not seen, in the order of their numbers.
 * Resolves to their names. Rejects with StoreNotOpened when the store has seen more than there is.
 */
export async function applyMigrations(folder: URL, target: MigrationTarget): Promise<readonly string[]> {
  const files = await listMigrations(folder);
  const unknown = (await target.applied()).filter((name) => !files.includes(name));
  if (unknown.length > 0) throw new StoreNotOpened(madeByNewer(unknown));
  const umzug = new Umzug({
    migrations: files.map((name) => ({
      name,
      up: async () => target.run(await readFile(new URL(name, folder), 'utf8')),
    })),
    storage: {
      executed: async () => target.applied(),
      logMigration: async ({ name }) => target.record(name),
      unlogMigration: () => Promise.reject(new Error('migrations only go forward')),
    },
    logger: undefined,
  });
  const done = await umzug.up();
  return done.map(({ name }) => name);
}

/** What keeps a store with these migrations from being read as it is: a newer version made it, or an older one. */
export async function inspectMigrations(folder: URL, applied: readonly string[]): Promise<readonly string[]> {
  const files = await listMigrations(folder);
  const unknown = applied.filter((name) => !files.includes(name));
  const missing = files.filter((name) => !applied.includes(name));
  if (unknown.length > 0) return [madeByNewer(unknown)];
  return missing.length > 0
    ? [`the store lacks ${missing.join(', ')}; \`plant-store migrate\` brings it up to date`]
    : [];
}

async function listMigrations(folder: URL): Promise<readonly string[]> {
  return (await readdir(folder)).filter((file) => file.endsWith('.sql')).sort();
}

function madeByNewer(names: readonly string[]): string {
  return `the store was made by a newer version of plant-store (it has ${names.join(', ')}); run that version`;
}
