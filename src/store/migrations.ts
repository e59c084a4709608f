import { listPackagedFiles, readPackagedFile } from '../packaged-files.ts';
import { StoreNotOpened } from './store.ts';

/** Access to a database during its migration. A lock keeps other processes from migrating it. */
export interface MigrationTarget {
  run(sql: string): Promise<void> | void;
  applied(): Promise<readonly string[]> | readonly string[];
  record(name: string): Promise<void> | void;
  /** Called before missing migrations are applied to an existing store, with their names. */
  readonly onMigrate?: ((names: readonly string[]) => void) | undefined;
}

/**
 * Applies the migrations in a folder that the store lacks, in the order of their numbers. Resolves to the
 * names of the applied migrations. Rejects with StoreNotOpened as `missingMigrations` does.
 */
export async function applyMigrations(folder: string, target: MigrationTarget): Promise<readonly string[]> {
  const missing = missingMigrations(folder, await target.applied());
  if (missing.length > 0 && !isNewStore(missing)) target.onMigrate?.(missing);
  for (const name of missing) {
    await runFile(folder, name, target);
    await target.record(name);
  }
  return missing;
}

/**
 * Returns the migrations in a folder that are not among those `applied`, in the order of their numbers. Accepts one newer
 * migration, since each migration is compatible with the previous service version. This permits rolling upgrades and
 * rollbacks. Throws StoreNotOpened if there are several, or the newer one is not the next.
 */
export function missingMigrations(folder: string, applied: readonly string[]): readonly string[] {
  const { files, missing, unknown } = compareMigrations(folder, applied);
  const isOneAhead = missing.length === 0 && unknown.length === 1 && follows(unknown[0], files.at(-1));
  if (unknown.length > 0 && !isOneAhead) throw new StoreNotOpened(madeByNewer(unknown));
  return missing;
}

/** True if the applied migrations made a new store: the first one was among them. */
export function isNewStore(applied: readonly string[]): boolean {
  return applied.some((name) => Number.parseInt(name, 10) === 1);
}

async function runFile(folder: string, name: string, target: MigrationTarget): Promise<void> {
  try {
    await target.run(readPackagedFile(`${folder}${name}`).toString());
  } catch (error: unknown) {
    // Adds the migration's name to the message, but throws the original error: callers read its error code,
    // such as SQLITE_BUSY.
    if (error instanceof Error) error.message = `the migration ${name} failed: ${error.message}`;
    throw error;
  }
}

/**
 * Returns how the migrations `applied` differ from those of this version, and what to do; undefined if they do not.
 */
export function whyOtherVersion(folder: string, applied: readonly string[]): string | undefined {
  const { missing, unknown } = compareMigrations(folder, applied);
  if (unknown.length > 0) return madeByNewer(unknown);
  return missing.length > 0
    ? `the store lacks ${missing.join(', ')}; run \`plant-store migrate\``
    : undefined;
}

function compareMigrations(folder: string, applied: readonly string[]) {
  const files = listPackagedFiles(folder)
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
