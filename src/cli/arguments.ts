import { InvalidArgumentError } from 'commander';
import { isOwner, isOwnerOfSubject, OWNER_RULE } from '../token.ts';
import { CommandFailed } from './command-errors.ts';
import { absolutePath, type CommandContext } from './context.ts';

/**
 * Creates a parser of file arguments. The parser returns an absolute path and rejects an empty argument. A
 * shell passes an empty argument if a variable is unset, as in `"$FILE"`.
 */
export function parseFile(context: CommandContext): (text: string) => string {
  return (text) => {
    if (text === '') throw new InvalidArgumentError('The argument must name a file.');
    return absolutePath(context, text);
  };
}

/** Throws CommandFailed unless the argument is a valid owner for `token create`. */
export function rejectUnlessLocalOwner(owner: string): void {
  if (!isOwner(owner)) throw new CommandFailed(`OWNER must be ${OWNER_RULE}`);
}

/**
 * Throws CommandFailed unless the argument is a valid owner name. The name identifies a local owner or a
 * subject of an identity provider.
 */
export function rejectUnlessOwner(owner: string): void {
  if (isOwner(owner) || isOwnerOfSubject(owner)) return;
  throw new CommandFailed(`OWNER must be ${OWNER_RULE}; or ISSUER#SUBJECT, such as https://id.example#7d1f`);
}
