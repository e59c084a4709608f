import { isOwner } from '../token.ts';

/** A command that could not do what it was asked; the message says what to do instead. */
export class CommandFailed extends Error {
  override readonly name = 'CommandFailed';
}

/** Throws CommandFailed when an argument cannot name an owner. */
export function refuseUnlessOwner(owner: string): void {
  if (isOwner(owner)) return;
  throw new CommandFailed(
    'OWNER must be 1 to 128 letters, digits and ._@+-, beginning with a letter or digit',
  );
}
