import { closeSync, existsSync, openSync, rmSync } from 'node:fs';
import { type FileHandle, link, open, rename, rm } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { SIDE_FILE_ENDING } from '../database-url.ts';
import { codeOf } from '../thrown-errors.ts';
import { CommandFailed, explainFileError } from './command-errors.ts';
import type { CommandContext } from './context.ts';
import { onSignal } from './signal-handler.ts';

/** Endings of the files that SQLite may create next to a database. */
const SQLITE_ENDINGS = ['-journal', '-wal', '-shm'] as const;

/**
 * Writes a new file atomically. `work` writes FILE.partial. Once that file is complete and on disk, it is
 * renamed to FILE. The file mode is 0600. Rejects with CommandFailed if FILE or a file that SQLite would take for a
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
    removeSync(partial);
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
  try {
    // Removes what SQLite left of an earlier partial file, since it would become part of the new one.
    for (const ending of SQLITE_ENDINGS) rmSync(`${partial}${ending}`, { force: true });
    const result = await work(partial);
    await sync(partial);
    await publish(partial, file);
    // Syncs the folder after the rename: only then is the new file name durable (fsync(2), notes).
    await folder.sync();
    return result;
  } catch (error: unknown) {
    removeSync(partial);
    throw explainFileError('write', file, error);
  }
}

function removeSync(partial: string): void {
  for (const ending of ['', ...SQLITE_ENDINGS]) rmSync(`${partial}${ending}`, { force: true });
}

// Opens the folder of a file. Without this handle, the new file name could not be synced to disk later.
async function openFolder(file: string): Promise<FileHandle> {
  try {
    return await open(dirname(resolve(file)), 'r');
  } catch (error: unknown) {
    throw explainFileError('create', file, error);
  }
}

// Gives the file its final name by a hard link, which fails if that name exists. A rename would overwrite the
// existing file.
async function publish(partial: string, file: string): Promise<void> {
  try {
    await link(partial, file);
  } catch (error: unknown) {
    if (codeOf(error) === 'EEXIST') throw alreadyThere(file);
    // Handles file systems without hard links: checks that the name is free, then renames the file.
    rejectExisting(file);
    return rename(partial, file);
  }
  await rm(partial);
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
  for (const ending of ['', ...SQLITE_ENDINGS])
    if (existsSync(`${file}${ending}`)) throw alreadyThere(`${file}${ending}`);
}

function alreadyThere(file: string): CommandFailed {
  return new CommandFailed(`the file ${file} already exists; choose another name or remove it`);
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
