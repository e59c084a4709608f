import { existsSync } from 'node:fs';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { CommandFailed } from './command-failed.ts';

/**
 * Makes a file that is there whole, on disk and for its owner alone (mode 0600), or not at all: the work writes to
 * another name beside it. Rejects with CommandFailed when there is such a file already.
 */
export async function makeWholeFile<T>(file: string, work: (partial: string) => Promise<T>): Promise<T> {
  refuseExisting(file);
  const partial = `${file}.partial`;
  await (await create(partial)).close();
  try {
    const result = await work(partial);
    await sync(partial);
    refuseExisting(file);
    await rename(partial, file);
    // A new name is on disk once the folder that has it is (fsync(2), notes).
    await sync(dirname(resolve(file)));
    return result;
  } catch (error: unknown) {
    await rm(partial, { force: true });
    throw error;
  }
}

function refuseExisting(file: string): void {
  if (existsSync(file))
    throw new CommandFailed(`there is a file ${file} already; name another, or remove it`);
}

async function create(partial: string): Promise<FileHandle> {
  try {
    return await open(partial, 'wx', 0o600);
  } catch (error: unknown) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
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
