import { Refusal } from '../errors.ts';
import { JsonInvalid, parseJson } from '../json.ts';

/** Parses a body as JSON, with its id exact. Throws Refusal 40001. */
export function parseJsonBody(bytes: Buffer): unknown {
  try {
    return parseJson(bytes);
  } catch (error: unknown) {
    if (error instanceof JsonInvalid) throw new Refusal(40001, `the body ${error.message}`);
    throw error;
  }
}
