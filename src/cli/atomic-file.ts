import { fstatSync, ftruncateSync, lstatSync, rmSync, statSync } from 'node:fs';
import { type FileHandle, link, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { SIDE_FILE_ENDING } from '../database-url.ts';
import { syncOpenFolder } from '../store/folder-sync.ts';
import { codeOf, messageOf } from '../thrown-errors.ts';
import { CommandFailed, explainFileError } from './command-errors.ts';
import type { CommandContext } from './context.ts';
import { onSignal } from './signal-handler.ts';

/** Endings of the files that SQLite may create next to a database. */
const SQLITE_ENDINGS = ['-journal', '-wal', '-shm'] as const;

/** A new file that is not complete yet. */
export interface PartialFile {
  readonly path: string;
  /** Leads to the file even if another user has given `path` to another one. */
  readonly handle: FileHandle;
}

/**
 * Writes a new file atomically. `work` writes FILE.partial. Once that file is complete and on disk, it gets
 * the name FILE. The file mode is 0600. Rejects with CommandFailed if FILE, FILE.partial or a file that SQLite would take
 * for a part of FILE exists, if FILE could be taken for a part of a store, if FILE.partial was replaced meanwhile, or if
 * the file cannot be written.
 */
export async function writeAtomically<T>(
  context: CommandContext,
  file: string,
  work: (partial: PartialFile) => Promise<T>,
): Promise<T> {
  rejectSideFile(file);
  rejectExisting(file);
  const folder = await openFolder(file);
  const creating = create(file, `${file}.partial`);
  let isComplete = false;
  // Waits for `create`, so a signal never leaves a partial file, and never removes that of another command.
  const stopListening = onSignal(context, (signal) => {
    // A complete file may have the name FILE already, so it is not emptied.
    const tidy = (partial: PartialFile) => (isComplete ? remove([partial.path]) : discard(partial));
    void creating.then(tidy, () => []).finally(() => context.end(signal));
  });
  try {
    const partial = await creating;
    const published: string[] = [];
    try {
      const result = await writeAndSync(partial, work);
      isComplete = true;
      await publish(partial.path, file);
      published.push(file);
      await rm(partial.path, { force: true });
      // Syncs the folder after `publish`: only then is the new file name durable.
      syncOpenFolder(folder.fd);
      return result;
    } catch (error: unknown) {
      const left = [...discard(partial), ...remove(published)];
      const explained = explainFileError('write', file, error);
      if (left.length === 0) throw explained;
      throw new CommandFailed(`${messageOf(explained)}; remove ${left.join(' and ')}`, { cause: error });
    } finally {
      await partial.handle.close();
    }
  } finally {
    stopListening();
    await folder.close();
  }
}

async function writeAndSync<T>(partial: PartialFile, work: (partial: PartialFile) => Promise<T>): Promise<T> {
  try {
    // Removes what SQLite left of an earlier partial file. SQLite does so only for a database, not an export.
    for (const sideFile of sideFilesOf(partial)) rmSync(sideFile, { force: true });
    const result = await work(partial);
    await partial.handle.sync();
    return result;
  } finally {
    // Also explains a failure of `work`, which may have read the other file.
    rejectIfReplaced(partial);
  }
}

/** Throws CommandFailed if the name of the partial file leads to another file, or to none. */
export function rejectIfReplaced(partial: PartialFile): void {
  if (isInPlace(partial)) return;
  throw new CommandFailed(
    `the file ${partial.path} was replaced or removed meanwhile by another user or program; write to a folder in which no other user can rename files`,
  );
}

// Compares with `lstat`: a symbolic link to the file itself is a replacement too.
function isInPlace({ path, handle }: PartialFile): boolean {
  const named = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  const opened = fstatSync(handle.fd, { bigint: true });
  return named?.dev === opened.dev && named.ino === opened.ino;
}

/** Empties and removes a partial file. Returns the files that could not be removed. Leaves a file that replaced it. */
function discard(partial: PartialFile): readonly string[] {
  const files = sideFilesOf(partial);
  try {
    if (isInPlace(partial)) files.unshift(partial.path);
    // The file may have got another name.
    ftruncateSync(partial.handle.fd);
  } catch {
    // The error that led here is reported.
  }
  return remove(files);
}

/** Returns the files that SQLite may create next to a partial file. */
function sideFilesOf({ path }: PartialFile): string[] {
  return SQLITE_ENDINGS.map((ending) => `${path}${ending}`);
}

/** Removes files. Returns those that could not be removed, as in a folder that became read-only. */
function remove(files: readonly string[]): readonly string[] {
  return files.filter((file) => {
    try {
      rmSync(file, { force: true });
      return false;
    } catch {
      return isThere(file);
    }
  });
}

// Opens the folder of a file, to sync the new file name at the end. A folder that cannot be opened fails before the work.
async function openFolder(file: string): Promise<FileHandle> {
  try {
    return await open(dirname(file), 'r');
  } catch (error: unknown) {
    throw explainFileError('create', file, error);
  }
}

// Gives the file its final name by a hard link, which fails if that name exists. A rename would overwrite the
// existing file. The partial name may stay.
async function publish(partial: string, file: string): Promise<void> {
  try {
    await link(partial, file);
  } catch (error: unknown) {
    if (codeOf(error) === 'EEXIST') throw alreadyThere(file);
    // Handles file systems without hard links: checks that the name is free, then renames the file.
    rejectExisting(file);
    await rename(partial, file);
  }
}

function rejectSideFile(file: string): void {
  const [ending] = SIDE_FILE_ENDING.exec(file) ?? [];
  if (ending === undefined) return;
  throw new CommandFailed(
    `the file ${file} cannot be used: its name ends in ${ending}, so SQLite or the service may delete it; choose another name`,
  );
}

// Also rejects what SQLite left of an earlier file with this name: it would change the content of a new one.
function rejectExisting(file: string): void {
  if (isFolder(file)) throw new CommandFailed(`cannot create ${file}: it is a folder; name a file in it`);
  for (const ending of ['', ...SQLITE_ENDINGS])
    if (isThere(`${file}${ending}`)) throw alreadyThere(`${file}${ending}`);
}

function isFolder(file: string): boolean {
  try {
    return statSync(file).isDirectory();
  } catch {
    return false;
  }
}

// True also for a symbolic link to an absent file, which SQLite would create or not open.
function isThere(file: string): boolean {
  try {
    lstatSync(file);
    return true;
  } catch {
    return false;
  }
}

// Does not advise to remove the file: it may be a store in use, or its log.
function alreadyThere(file: string): CommandFailed {
  return new CommandFailed(`the file ${file} already exists; choose another name`);
}

async function create(file: string, path: string): Promise<PartialFile> {
  try {
    return { path, handle: await open(path, 'wx', 0o600) };
  } catch (error: unknown) {
    if (codeOf(error) !== 'EEXIST') throw explainFileError('create', file, error);
    throw new CommandFailed(
      `the file ${path} exists: another command is running or was interrupted; if no command is running, remove it`,
    );
  }
}
