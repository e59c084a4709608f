import { closeSync, existsSync, openSync, rmSync } from 'node:fs';
import { link, open, rename, rm } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { codeOf } from '../api-errors.ts';
import { CommandFailed, explainFileError } from './command-errors.ts';
import type { CommandContext } from './context.ts';
import { onSignal } from './signal-handler.ts';

/**
 * Writes a new file atomically: `work` writes FILE.partial, which is renamed to FILE when complete and on
 * disk. The file mode is 0600. Rejects with CommandFailed if FILE exists.
 */
export async function writeAtomically<T>(
  context: CommandContext,
  file: string,
  work: (partial: string) => Promise<T>,
): Promise<T> {
  rejectExisting(file);
  const partial = `${file}.partial`;
  // Adds the signal handlers before the partial file exists, so that every signal removes the file. No
  // handler can run earlier and remove the file of another command: `create` is synchronous.
  const stopListening = onSignal(context, (signal) => {
    removeSync(partial);
    context.end(signal);
  });
  try {
    create(file, partial);
    return await writeAndPublish(file, partial, work);
  } finally {
    stopListening();
  }
}

async function writeAndPublish<T>(
  file: string,
  partial: string,
  work: (partial: string) => Promise<T>,
): Promise<T> {
  try {
    const result = await work(partial);
    await sync(partial);
    await publish(partial, file);
    // Syncs the folder after the rename: only then is the new file name durable (fsync(2), notes).
    await sync(dirname(resolve(file)));
    return result;
  } catch (error: unknown) {
    removeSync(partial);
    throw error;
  }
}

// Removes the partial file, and -wal and -shm files that SQLite may have created.
function removeSync(partial: string): void {
  for (const file of [partial, `${partial}-wal`, `${partial}-shm`]) rmSync(file, { force: true });
}

// Renames by a hard link, which fails if the new name exists. A rename would overwrite an existing file.
async function publish(partial: string, file: string): Promise<void> {
  try {
    await link(partial, file);
  } catch (error: unknown) {
    if (codeOf(error) === 'EEXIST') throw alreadyThere(file);
    // For file systems without hard links: checks that the name is free, then renames.
    rejectExisting(file);
    return rename(partial, file);
  }
  await rm(partial);
}

function rejectExisting(file: string): void {
  if (existsSync(file)) throw alreadyThere(file);
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
