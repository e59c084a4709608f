import { InvalidArgumentError } from 'commander';
import { isOwner, isOwnerOfSubject, OWNER_RULE } from '../token.ts';
import { CommandFailed } from './command-errors.ts';
import { absolutePath, type CommandContext } from './context.ts';

/**
 * Creates a parser for a file argument. The parser returns the absolute path of the file. It rejects an empty argument,
 * which a shell passes for an unset variable such as `"$FILE"`.
 */
export function parseFile(context: CommandContext): (text: string) => string {
  return (text) => {
    if (text === '') throw new InvalidArgumentError('It must name a file.');
    return absolutePath(context, text);
  };
}

/** Throws CommandFailed unless the argument is an owner of local tokens. */
export function rejectUnlessLocalOwner(owner: string): void {
  if (!isOwner(owner)) throw new CommandFailed(`OWNER must be ${OWNER_RULE}`);
}

/** Throws CommandFailed unless the argument is an owner of local tokens or a subject of an identity provider. */
export function rejectUnlessOwner(owner: string): void {
  if (isOwner(owner) || isOwnerOfSubject(owner)) return;
  throw new CommandFailed(
    `OWNER must be ${OWNER_RULE}; or ISSUER#SUBJECT, such as https://id.example#7d1f`,
  );
}
