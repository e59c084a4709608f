import { ApiError } from '../../api-errors.ts';
import { JsonInvalid, parseJson } from '../../exact-json.ts';
import type { TSchema } from '../../schema.ts';
import { compileCheck, compileTextParser, numberFieldsOf, propertiesOf } from '../../validation.ts';
import { headerCase } from '../header-names.ts';

/** Replaces Fastify's schema compilers, which are never used here but would be loaded at every start. */
export const withoutCompilers = {
  compilersFactory: { buildValidator: rejectCompilation, buildSerializer: rejectCompilation },
};

function rejectCompilation(): never {
  throw new Error('use compileRequestCheck for requests, and no schema for responses');
}

const VALID: { readonly value?: unknown } = {};

/**
 * Compiles the check of a part of a request, such as headers. The check converts the strings of path and
 * query parameters to the schema's types.
 */
export function compileRequestCheck(schema: TSchema, part: string | undefined) {
  const check = compileCheck(schema);
  const decode = part === 'params' || part === 'querystring' ? compileDecode(schema) : identity;
  return (value: unknown) => {
    const checked = check(decode(value));
    // Returns no `value` for headers. If `value` is set, Fastify copies all headers at each access to
    // `request.headers`.
    if ('value' in checked) return part === 'headers' ? VALID : checked;
    const { field, rule } = checked.violation;
    const fault = part === 'querystring' && isRepeated(value, field) ? 'is given more than once' : rule;
    return { error: new ApiError(40000, `${nameOf(field, part)} ${fault}`) };
  };
}

/**
 * Compiles a parser of JSON bodies. The parser throws an ApiError: 40001 for invalid JSON, 40000 for an
 * invalid value.
 */
export function compileBodyCheck(schema: TSchema): (bytes: unknown) => unknown {
  const check = compileRequestCheck(schema, undefined);
  const fields = Object.keys(propertiesOf(schema));
  const numberFields = numberFieldsOf(schema);
  return (bytes) => {
    if (!Buffer.isBuffer(bytes)) throw new ApiError(40001, 'the body is missing; it must be a JSON object');
    const checked = check(parseJsonBody(bytes, fields, numberFields));
    if ('error' in checked) throw checked.error;
    return checked.value;
  };
}

/** Parses a request body as `parseJson` does. Throws an ApiError (40001) if the JSON is invalid. */
function parseJsonBody(bytes: Buffer, fields: readonly string[], numberFields: readonly string[]): unknown {
  try {
    return parseJson(bytes, fields, numberFields);
  } catch (error: unknown) {
    if (error instanceof JsonInvalid) throw new ApiError(40001, `the body ${error.message}`);
    throw error;
  }
}

/**
 * Returns true if a query parameter was sent more than once. The query parser then returns an array of
 * values.
 */
function isRepeated(query: unknown, name: string): boolean {
  return typeof query === 'object' && query !== null && Array.isArray(Reflect.get(query, name));
}

function nameOf(field: string, part: string | undefined): string {
  if (field === '') return 'the body';
  if (part === 'params') return `the path parameter \`${field}\``;
  if (part === 'querystring') return `the query parameter \`${field}\``;
  return part === 'headers' ? `the header \`${headerCase(field)}\`` : `the field \`${field}\``;
}

/**
 * Compiles the conversion of path or query parameters from strings to the types of the schema. The result has
 * no other parameters.
 */
function compileDecode(schema: TSchema): (value: unknown) => unknown {
  const decoders = Object.entries(propertiesOf(schema)).map(
    ([name, property]) => [name, compileTextParser(property)] as const,
  );
  return (value) => {
    if (typeof value !== 'object' || value === null) return value;
    const decoded: Record<string, unknown> = {};
    for (const [name, decode] of decoders) {
      if (Object.hasOwn(value, name)) decoded[name] = decode(Reflect.get(value, name));
    }
    return decoded;
  };
}

function identity(value: unknown): unknown {
  return value;
}
