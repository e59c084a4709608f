import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { codeOf } from '../api-errors.ts';
import { CommandFailed } from './command-error.ts';

/** Why a file cannot be read or made, in words for people; an error that is not of the file system comes back as it is. */
export function fileFailed(aim: 'read' | 'make', file: string, error: unknown): unknown {
  const reason = reasonOf(codeOf(error), aim, file);
  return reason === undefined
    ? error
    : new CommandFailed(`cannot ${aim} ${file}: ${reason}`, { cause: error });
}

function reasonOf(code: string, aim: 'read' | 'make', file: string): string | undefined {
  switch (code) {
    case 'ENOENT':
      if (aim === 'read') return 'there is no such file';
      if (file.endsWith('/')) return 'it names a folder; name a file in it';
      return existsSync(dirname(resolve(file)))
        ? 'no file can be made there'
        : `there is no folder ${dirname(resolve(file))}`;
    case 'ENAMETOOLONG':
      return 'its name is too long';
    case 'ENOTDIR':
      return `${dirname(resolve(file))} is no folder`;
    case 'EISDIR':
      return 'it is a folder';
    case 'EACCES':
    case 'EPERM':
      return 'this user may not';
    case 'EROFS':
      return 'its file system is read-only';
    case 'ENOSPC':
      return 'the disk is full';
    default:
      return undefined;
  }
}
