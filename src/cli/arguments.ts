import { InvalidArgumentError } from 'commander';
import { isOwner, isOwnerOfSubject } from '../token.ts';
import { CommandFailed } from './command-errors.ts';

const LOCAL_DEMAND = '1 to 128 letters, digits and ._@+-, beginning with a letter or digit';

/** Parses a file argument. Rejects an empty one, which a shell makes of a variable that is not set. */
export function parseFile(text: string): string {
  if (text === '') throw new InvalidArgumentError('It must name a file.');
  return text;
}

/** Throws CommandFailed unless the argument is an owner of local tokens. */
export function rejectUnlessLocalOwner(owner: string): void {
  if (!isOwner(owner)) throw new CommandFailed(`OWNER must be ${LOCAL_DEMAND}`);
}

/** Throws CommandFailed unless the argument is an owner of local tokens or a subject of an identity provider. */
export function rejectUnlessOwner(owner: string): void {
  if (isOwner(owner) || isOwnerOfSubject(owner)) return;
  throw new CommandFailed(
    `OWNER must be ${LOCAL_DEMAND}; or ISSUER#SUBJECT, such as https://id.example#7d1f`,
  );
}
