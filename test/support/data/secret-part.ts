import { TOKEN_PREFIX } from '../../../src/token.ts';

const PART_LENGTH = 8;

/**
 * Returns the characters of a token that follow its prefix. A search for this part in an output also finds a
 * token without its prefix or end.
 */
export function secretPart(secret: string): string {
  return secret.slice(TOKEN_PREFIX.length, TOKEN_PREFIX.length + PART_LENGTH);
}
