import { randomBytes } from 'node:crypto';

/** Creates a generator of unique request ids. An id has a random prefix of the process and a counter. */
export function createRequestIds(): () => string {
  const prefix = randomBytes(6).toString('base64url');
  let count = 0;
  return () => {
    count += 1;
    return `${prefix}-${count.toString(36)}`;
  };
}
