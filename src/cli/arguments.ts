import { InvalidArgumentError } from 'commander';
import { NOT_UTF_8 } from '../database-url.ts';
import { isOwner, isOwnerOfSubject, isWellFormedSecret, OWNER_RULE } from '../token.ts';
import { CommandFailed } from './command-errors.ts';
import { absolutePath, type CommandContext } from './context.ts';

/**
 * Creates a parser of file arguments. The parser returns an absolute path and rejects an empty argument, and one that
 * is not UTF-8. A shell passes an empty argument if a variable is unset, as in `"$FILE"`.
 */
export function parseFile(context: CommandContext): (text: string) => string {
  return (text) => {
    if (text === '') throw new InvalidArgumentError('The argument must name a file.');
    if (text.includes('\ufffd')) throw new InvalidArgumentError(`The name ${NOT_UTF_8}.`);
    return absolutePath(context, text);
  };
}

/**
 * Throws CommandFailed unless the argument is a valid owner name. The name identifies a local owner or a
 * subject of an identity provider.
 */
export function rejectUnlessOwner(owner: string): void {
  // A token would be stored, logged or printed as the name of an owner.
  if (isWellFormedSecret(owner))
    throw new CommandFailed('OWNER is a token, not a name; `plant-store token revoke` takes a token');
  if (isOwner(owner) || isOwnerOfSubject(owner)) return;
  throw new CommandFailed(`OWNER must be ${OWNER_RULE}; or ISSUER#SUBJECT, such as https://id.example#7d1f`);
}
