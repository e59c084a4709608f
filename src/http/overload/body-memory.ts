import { ApiError, ShareExceeded } from '../../api-errors.ts';
import { RETRY_SOON } from '../error-response.ts';
import { OWNER_SHARE } from './concurrency-limit.ts';

/** Max counted bytes of all bodies that arrive in parts. */
export const BODY_MEMORY_BYTES = 16 * 1024 * 1024;
/** Min number of bodies of the max size that the limit allows. */
export const MIN_LARGEST_BODIES = 4;

/**
 * Returns a function that adds bytes to the counted memory of an owner's bodies, and releases them if negative. It throws an
 * ApiError (50301) if the bodies of all owners or of this owner would be above their limit. `largest` is the
 * max size of a body in bytes.
 */
export function createBodyMemory(largest: number): (owner: string, bytes: number) => void {
  const limit = Math.max(BODY_MEMORY_BYTES, MIN_LARGEST_BODIES * largest);
  const limitOfOwner = limit * OWNER_SHARE;
  const headers = { ...RETRY_SOON, connection: 'close' };
  const full = new ApiError(50301, 'request bodies use too much memory; retry later', headers);
  const fullForOwner = new ShareExceeded(
    'request bodies of this owner use too much memory; retry later',
    headers,
  );
  const byOwner = new Map<string, number>();
  let inAll = 0;

  return (owner, bytes) => {
    const ofOwner = (byOwner.get(owner) ?? 0) + bytes;
    if (bytes > 0 && inAll + bytes > limit) throw full;
    if (bytes > 0 && ofOwner > limitOfOwner) throw fullForOwner;
    inAll += bytes;
    if (ofOwner === 0) byOwner.delete(owner);
    else byOwner.set(owner, ofOwner);
  };
}
