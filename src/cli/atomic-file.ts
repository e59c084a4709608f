import { closeSync, existsSync, openSync, rmSync } from 'node:fs';
import { link, open, rename, rm } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { codeOf } from '../api-errors.ts';
import { CommandFailed } from './command-error.ts';
import { fileFailed } from './file-error.ts';
import { onSignal } from './signal-handler.ts';

/**
 * Makes a file that is there whole, on disk and for its owner alone (mode 0600), or not at all: the work writes to
 * another name beside it. Rejects with CommandFailed when there is such a file already.
 */
export async function makeWholeFile<T>(file: string, work: (partial: string) => Promise<T>): Promise<T> {
  rejectExisting(file);
  const partial = `${file}.partial`;
  // Before the file is made, which takes one turn of the event loop: no signal is handled within that.
  const stopListening = onSignal((signal) => {
    removeSync(partial);
    process.kill(process.pid, signal);
  });
  try {
    create(file, partial);
    return await fill(file, partial, work);
  } finally {
    stopListening();
  }
}

async function fill<T>(file: string, partial: string, work: (partial: string) => Promise<T>): Promise<T> {
  try {
    const result = await work(partial);
    await sync(partial);
    await publish(partial, file);
    // A new name is on disk once the folder that has it is (fsync(2), notes).
    await sync(dirname(resolve(file)));
    return result;
  } catch (error: unknown) {
    removeSync(partial);
    throw error;
  }
}

// SQLite, too, may have put something beside it.
function removeSync(partial: string): void {
  for (const file of [partial, `${partial}-wal`, `${partial}-shm`]) rmSync(file, { force: true });
}

// By a link, since a name that is taken refuses it, also one that was taken a moment ago.
async function publish(partial: string, file: string): Promise<void> {
  try {
    await link(partial, file);
  } catch (error: unknown) {
    if (codeOf(error) === 'EEXIST') throw alreadyThere(file);
    // Not every file system has links.
    rejectExisting(file);
    return rename(partial, file);
  }
  await rm(partial);
}

function rejectExisting(file: string): void {
  if (existsSync(file)) throw alreadyThere(file);
}

function alreadyThere(file: string): CommandFailed {
  return new CommandFailed(`there is a file ${file} already; name another, or remove it`);
}

// Synchronously, so that no signal finds the file half made.
function create(file: string, partial: string): void {
  try {
    closeSync(openSync(partial, 'wx', 0o600));
  } catch (error: unknown) {
    if (codeOf(error) !== 'EEXIST') throw fileFailed('make', file, error);
    throw new CommandFailed(
      `there is a file ${partial}, of a command that still runs or was ended; remove it if none runs`,
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
