import { closeSync, existsSync, lstatSync, openSync, rmSync } from 'node:fs';
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

/**
 * Writes a new file atomically. `work` writes FILE.partial. Once that file is complete and on disk, it gets
 * the name FILE. The file mode is 0600. Rejects with CommandFailed if FILE or a file that SQLite would take for a
 * part of it exists, or if FILE could be taken for a part of a store.
 */
export async function writeAtomically<T>(
  context: CommandContext,
  file: string,
  work: (partial: string) => Promise<T>,
): Promise<T> {
  rejectSideFile(file);
  rejectExisting(file);
  const partial = `${file}.partial`;
  const folder = await openFolder(file);
  // Adds the signal handlers before `create`, so a signal never leaves a partial file. If another command's
  // partial file exists, the synchronous `create` throws before a handler could remove that file.
  const stopListening = onSignal(context, (signal) => {
    remove(partsOf(partial));
    context.end(signal);
  });
  try {
    create(file, partial);
    return await writeAndPublish(file, partial, folder, work);
  } finally {
    stopListening();
    await folder.close();
  }
}

async function writeAndPublish<T>(
  file: string,
  partial: string,
  folder: FileHandle,
  work: (partial: string) => Promise<T>,
): Promise<T> {
  const created = partsOf(partial);
  try {
    // Removes what SQLite left of an earlier partial file. SQLite does so only for a database, not an export.
    for (const ending of SQLITE_ENDINGS) rmSync(`${partial}${ending}`, { force: true });
    const result = await work(partial);
    await sync(partial);
    await publish(partial, file);
    created.push(file);
    await rm(partial, { force: true });
    // Syncs the folder after `publish`: only then is the new file name durable.
    syncOpenFolder(folder.fd);
    return result;
  } catch (error: unknown) {
    const left = remove(created);
    const explained = explainFileError('write', file, error);
    if (left.length === 0) throw explained;
    throw new CommandFailed(`${messageOf(explained)}; remove ${left.join(' and ')}`, { cause: error });
  }
}

/** Returns the partial file, and the files that SQLite may create next to it. */
function partsOf(partial: string): string[] {
  return ['', ...SQLITE_ENDINGS].map((ending) => `${partial}${ending}`);
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

// Opens the folder of a file. Without this handle, the new file name could not be synced to disk later.
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
  if (existsSync(`${file}/.`))
    throw new CommandFailed(`cannot create ${file}: it is a folder; name a file in it`);
  for (const ending of ['', ...SQLITE_ENDINGS])
    if (isThere(`${file}${ending}`)) throw alreadyThere(`${file}${ending}`);
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

// Creates the partial file synchronously, so that no signal handler runs before the file exists.
function create(file: string, partial: string): void {
  try {
    closeSync(openSync(partial, 'wx', 0o600));
  } catch (error: unknown) {
    if (codeOf(error) !== 'EEXIST') throw explainFileError('create', file, error);
    throw new CommandFailed(
      `the file ${partial} exists: another command is running or was interrupted; if no command is running, remove it`,
    );
  }
}

async function sync(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
