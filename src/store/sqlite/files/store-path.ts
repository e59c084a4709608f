import { existsSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { codeOf } from '../../../thrown-errors.ts';
import { StoreNotOpened } from '../../store.ts';
import { rejectLongPath } from '../errors.ts';

/**
 * Returns the file that SQLite uses for a symbolic link: the files with endings such as `-wal` lie next to it.
 * Follows links to a file that does not exist yet too, also in new folders.
 */
export function withoutLinks(file: string): string {
  try {
    // Not `realpathSync`: it resolves `..` against the link instead of its target, and can loop forever.
    return realpathSync.native(file);
  } catch (error: unknown) {
    return codeOf(error) === 'ENOENT' ? withoutDanglingLink(file) : file;
  }
}

function withoutDanglingLink(file: string): string {
  const folder = dirname(file);
  if (folder === file) return file;
  let link: string;
  try {
    link = readlinkSync(file);
  } catch {
    return join(withoutLinks(folder), basename(file));
  }
  return withoutLinks(isAbsolute(link) ? link : `${folder}/${link}`);
}

/**
 * Throws if a file cannot be a store because of its path or of the files next to it:
 * - StoreNotOpened if the file is missing or empty, but its log has content. SQLite would delete that log.
 *   An empty file with a rollback journal is an interrupted first start, which SQLite repairs.
 * - the error of `rejectLongPath`.
 */
export function rejectUnusablePath(file: string): void {
  const place = withoutLinks(file);
  rejectLongPath(place);
  // Looks for the logs first: another process may create file and logs now.
  const [log, journal] = ['-wal', '-journal'].map((ending) => `${place}${ending}`).map(fileWithContent);
  const isMissing = !existsSync(place);
  const left = isMissing ? (log ?? journal) : log;
  if (left === undefined || fileWithContent(place) !== undefined) return;
  throw new StoreNotOpened(
    `${file} is ${isMissing ? 'missing' : 'empty'}, but ${left} is there and may hold its last writes; put that same file back. To restore a backup or to start empty, first move ${left} away`,
  );
}

/** Returns the file if it has content. A file that another process removes meanwhile, or that cannot exist, has none. */
export function fileWithContent(file: string): string | undefined {
  try {
    return statSync(file).size > 0 ? file : undefined;
  } catch {
    return undefined;
  }
}
