import { isOwner, isOwnerOfSubject } from '../token.ts';
import { CommandFailed } from './command-error.ts';

const LOCAL_DEMAND = '1 to 128 letters, digits and ._@+-, beginning with a letter or digit';

/** Throws CommandFailed when an argument cannot name an owner of tokens made here. */
export function rejectUnlessLocalOwner(owner: string): void {
  if (!isOwner(owner)) throw new CommandFailed(`OWNER must be ${LOCAL_DEMAND}`);
}

/** Throws CommandFailed when an argument can name neither such an owner nor one that an identity provider vouches for. */
export function rejectUnlessOwner(owner: string): void {
  if (isOwner(owner) || isOwnerOfSubject(owner)) return;
  throw new CommandFailed(
    `OWNER must be ${LOCAL_DEMAND}; or an issuer, # and a subject, such as https://id.example#7d1f`,
  );
}
