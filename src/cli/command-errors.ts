import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { codeOf, OperatorError } from '../thrown-errors.ts';

/** Error of a failed command. Its message says what happened and what to do. */
export class CommandFailed extends OperatorError {
  override readonly name = 'CommandFailed';
}

type Aim = 'read' | 'create' | 'write';

/** Reasons that depend only on the code of the error. */
const REASONS: Readonly<Record<string, string>> = {
  ENAMETOOLONG: 'its name or path is too long',
  ELOOP: 'its symbolic links form a loop',
  EISDIR: 'it is a folder',
  ENXIO: 'it is a socket, or a device that is not present',
  EACCES: 'permission denied for this user',
  EPERM: 'permission denied for this user',
  EROFS: 'its file system is read-only',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota of this user is used up',
  EFBIG: 'it exceeds the file size limit of this process or file system',
  EIO: 'the disk reports an error; check it, and the log of the kernel',
};

/** Explains a file-system error as CommandFailed; returns any other error unchanged. */
export function explainFileError(aim: Aim, file: string, error: unknown): unknown {
  const reason = reasonOf(codeOf(error), aim, file);
  return reason === undefined
    ? error
    : new CommandFailed(`cannot ${aim} ${file}: ${reason}`, { cause: error });
}

function reasonOf(code: string, aim: Aim, file: string): string | undefined {
  switch (code) {
    case 'ENOENT':
      if (aim === 'read') return 'there is no such file';
      if (file.endsWith('/')) return 'it is a folder; name a file in it';
      return existsSync(dirname(file))
        ? 'no file can be created in this folder'
        : `there is no folder ${dirname(file)}`;
    case 'ENOTDIR':
      return `${file.endsWith('/') ? file.replace(/\/+$/, '') : dirname(file)} is not a folder`;
    default:
      return REASONS[code];
  }
}
