import { closeSync, existsSync, openSync, rmSync } from 'node:fs';
import { link, open, rename, rm } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { codeOf } from '../api-errors.ts';
import { CommandFailed, explainFileError } from './command-errors.ts';
import type { CommandContext } from './context.ts';
import { onSignal } from './signal-handler.ts';

/**
 * Writes a new file atomically: `work` writes to FILE.partial, which gets its name once it is complete and on disk.
 * The file mode is 0600. Rejects with CommandFailed when the file exists.
 */
export async function writeAtomically<T>(
  context: CommandContext,
  file: string,
  work: (partial: string) => Promise<T>,
): Promise<T> {
  rejectExisting(file);
  const partial = `${file}.partial`;
  // Listens before the file is created. Creation is synchronous, so no signal falls between it and `try`.
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
    // The new name is durable only after an fsync of its folder (fsync(2), notes).
    await sync(dirname(resolve(file)));
    return result;
  } catch (error: unknown) {
    removeSync(partial);
    throw error;
  }
}

// SQLite may have created the -wal and -shm files.
function removeSync(partial: string): void {
  for (const file of [partial, `${partial}-wal`, `${partial}-shm`]) rmSync(file, { force: true });
}

// Creates a hard link, which fails when the name exists. A rename would overwrite the other file.
async function publish(partial: string, file: string): Promise<void> {
  try {
    await link(partial, file);
  } catch (error: unknown) {
    if (codeOf(error) === 'EEXIST') throw alreadyThere(file);
    // Some file systems have no hard links.
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

// Synchronous, so that no signal handler runs before the file is complete.
function create(file: string, partial: string): void {
  try {
    closeSync(openSync(partial, 'wx', 0o600));
  } catch (error: unknown) {
    if (codeOf(error) !== 'EEXIST') throw explainFileError('create', file, error);
    throw new CommandFailed(
      `the file ${partial} exists, from a command that is running or was interrupted; remove it if none is running`,
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
