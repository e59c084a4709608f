import { randomBytes } from 'node:crypto';

/** Makes names for requests, each given once: random for the process, with a count behind that. */
export function createRequestIds(): () => string {
  const prefix = randomBytes(6).toString('base64url');
  let count = 0;
  return () => {
    count += 1;
    return `${prefix}-${count.toString(36)}`;
  };
}
