import { randomBytes } from 'node:crypto';

/**
 * Creates a generator of unique request ids. Each id is the random prefix of this generator plus a counter.
 */
export function createRequestIds(): () => string {
  const prefix = randomBytes(6).toString('base64url');
  let count = 0;
  return () => {
    count += 1;
    return `${prefix}-${count.toString(36)}`;
  };
}
