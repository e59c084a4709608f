import { closeSync, fsyncSync, openSync } from 'node:fs';
import { codeOf } from '../thrown-errors.ts';

/**
 * Error of a system that does not sync folders: on Windows, all (nodejs/node#3879), where NTFS logs names; elsewhere, some file
 * systems, such as those of virtual machines that share a folder of their host.
 */
const UNSUPPORTED = process.platform === 'win32' ? 'EPERM' : 'EINVAL';

/** Syncs a folder, which makes the names of new files in it durable (fsync(2), notes). Throws an error of the file system. */
export function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r');
  try {
    syncOpenFolder(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Does the same for the descriptor of an open folder. */
export function syncOpenFolder(descriptor: number): void {
  try {
    fsyncSync(descriptor);
  } catch (error: unknown) {
    if (codeOf(error) !== UNSUPPORTED) throw error;
  }
}
