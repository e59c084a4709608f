import { PREFIX } from '../../../src/token.ts';

const PART_LENGTH = 8;

/** Returns a part of a token that no output may contain. It also detects a token without its prefix or its end. */
export function secretPart(secret: string): string {
  return secret.slice(PREFIX.length, PREFIX.length + PART_LENGTH);
}
