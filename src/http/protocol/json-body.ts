import { ApiError } from '../../api-errors.ts';
import { JsonInvalid, parseJson } from '../../exact-json.ts';
import { newPlantFields, numberFields } from '../../plant.ts';

/** Parses a request body as the JSON of a new plant. Throws an ApiError (40001) if it is not valid JSON. */
export function parseJsonBody(bytes: Buffer): unknown {
  try {
    return parseJson(bytes, newPlantFields, numberFields);
  } catch (error: unknown) {
    if (error instanceof JsonInvalid) throw new ApiError(40001, `the body ${error.message}`);
    throw error;
  }
}
