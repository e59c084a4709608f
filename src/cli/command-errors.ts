import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { codeOf } from '../api-errors.ts';
import { OperatorError } from '../operator-error.ts';

/** Error of a failed command. Its message says what happened and what to do. */
export class CommandFailed extends OperatorError {
  override readonly name = 'CommandFailed';
}

/** Explains a file-system error as CommandFailed; returns any other error unchanged. */
export function explainFileError(aim: 'read' | 'create', file: string, error: unknown): unknown {
  const reason = reasonOf(codeOf(error), aim, file);
  return reason === undefined
    ? error
    : new CommandFailed(`cannot ${aim} ${file}: ${reason}`, { cause: error });
}

function reasonOf(code: string, aim: 'read' | 'create', file: string): string | undefined {
  switch (code) {
    case 'ENOENT':
      if (aim === 'read') return 'there is no such file';
      if (file.endsWith('/')) return 'it is a folder; name a file in it';
      return existsSync(dirname(resolve(file)))
        ? 'no file can be created in this folder'
        : `there is no folder ${dirname(resolve(file))}`;
    case 'ENAMETOOLONG':
      return 'its name is too long';
    case 'ENOTDIR':
      return `${file.endsWith('/') ? resolve(file) : dirname(resolve(file))} is not a folder`;
    case 'EISDIR':
      return 'it is a folder';
    case 'EACCES':
    case 'EPERM':
      return 'permission denied for this user';
    case 'EROFS':
      return 'its file system is read-only';
    case 'ENOSPC':
      return 'the disk is full';
    default:
      return undefined;
  }
}
