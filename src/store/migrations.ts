import { readdirSync, readFileSync } from 'node:fs';
import { StoreNotOpened } from './store.ts';

/** What an engine lends to the migrations while it holds a transaction that keeps others out. */
export interface MigrationTarget {
  run(sql: string): Promise<void> | void;
  applied(): Promise<string[]> | string[];
  record(name: string): Promise<void> | void;
}

/**
 * Applies the SQL files of a folder that a store has not seen, in the order of their numbers.
 * Resolves to their names. Rejects with StoreNotOpened when the store has seen more than there is, except for the one
 * that comes next: a version works with the migration of the version after it, so that it can start again while that
 * one takes over, or to take its place.
 */
export async function applyMigrations(folder: URL, target: MigrationTarget): Promise<readonly string[]> {
  const { files, missing, unknown } = compareMigrations(folder, await target.applied());
  const isOneAhead = missing.length === 0 && unknown.length === 1 && follows(unknown[0], files.at(-1));
  if (unknown.length > 0 && !isOneAhead) throw new StoreNotOpened(madeByNewer(unknown));
  for (const name of missing) {
    await runFile(new URL(name, folder), name, target);
    await target.record(name);
  }
  return missing;
}

async function runFile(file: URL, name: string, target: MigrationTarget): Promise<void> {
  try {
    await target.run(readFileSync(file, 'utf8'));
  } catch (error: unknown) {
    // Not in another error, since its code says what it means: a lock, a store that may not be written, a lost host.
    if (error instanceof Error) error.message = `the migration ${name} failed: ${error.message}`;
    throw error;
  }
}

/** What keeps a store with these migrations from being read as it is: a newer version made it, or an older one. */
export function inspectMigrations(folder: URL, applied: readonly string[]): readonly string[] {
  const { missing, unknown } = compareMigrations(folder, applied);
  if (unknown.length > 0) return [madeByNewer(unknown)];
  return missing.length > 0
    ? [`the store lacks ${missing.join(', ')}; \`plant-store migrate\` brings it up to date`]
    : [];
}

function compareMigrations(folder: URL, applied: readonly string[]) {
  const files = readdirSync(folder)
    .filter((file) => file.endsWith('.sql'))
    .sort();
  return {
    files,
    missing: files.filter((name) => !applied.includes(name)),
    unknown: applied.filter((name) => !files.includes(name)),
  };
}

function follows(name = '', before = ''): boolean {
  return Number.parseInt(name, 10) === Number.parseInt(before, 10) + 1;
}

function madeByNewer(names: readonly string[]): string {
  return `the store was made by a newer version of plant-store (it has ${names.join(', ')}); run that version`;
}
