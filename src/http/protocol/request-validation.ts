import type { TSchema } from 'typebox';
import { ApiError } from '../../api-errors.ts';
import { compileCheck, compileFromText, propertiesOf, propertyOf } from '../../validation.ts';
import { headerCase } from '../openapi.ts';
import { parseJsonBody } from './json-body.ts';

/** For Fastify: in place of its own compilers, which it would load at every start and never use here. */
export const withoutCompilers = {
  compilersFactory: { buildValidator: rejectCompilation, buildSerializer: rejectCompilation },
};

function rejectCompilation(): never {
  throw new Error('requests are checked by compileRequestCheck, and answers are rendered without schemas');
}

/** The check of one part of a request: texts become what the schema says, and the message names the part at fault. */
export function compileRequestCheck(schema: TSchema, part: string | undefined) {
  const check = compileCheck(schema);
  const decode = part === 'params' || part === 'querystring' ? compileDecode(schema) : asItIs;
  return (value: unknown) => {
    const checked = check(decode(value));
    if ('value' in checked) return checked;
    const { field, demand } = checked.violation;
    const fault = part === 'querystring' && isRepeated(value, field) ? 'is given more than once' : demand;
    return { error: new ApiError(40000, `${nameOf(field, part)} ${fault}`) };
  };
}

/** The check of a JSON body, from its bytes. Throws an ApiError: 40001 when it is not JSON, 40000 when it breaks the schema. */
export function compileBodyCheck(schema: TSchema): (bytes: unknown) => unknown {
  const check = compileRequestCheck(schema, undefined);
  return (bytes) => {
    if (!Buffer.isBuffer(bytes)) throw new ApiError(40001, 'the body is missing; it must be a JSON object');
    const checked = check(parseJsonBody(bytes));
    if ('error' in checked) throw checked.error;
    return checked.value;
  };
}

/** A query in which a name stands twice has all its values in an array. */
function isRepeated(query: unknown, name: string): boolean {
  return typeof query === 'object' && query !== null && Array.isArray(Reflect.get(query, name));
}

function nameOf(field: string, part: string | undefined): string {
  if (field === '') return 'the body';
  if (part === 'params') return `the path parameter \`${field}\``;
  if (part === 'querystring') return `the query parameter \`${field}\``;
  return part === 'headers' ? `the header \`${headerCase(field)}\`` : `the field \`${field}\``;
}

/** Compiles a schema to what makes of the texts of a path or a query what they stand for. */
function compileDecode(schema: TSchema): (value: unknown) => unknown {
  const decoders = Object.keys(propertiesOf(schema)).map(
    (name) => [name, compileFromText(propertyOf(schema, name))] as const,
  );
  return (value) => {
    if (typeof value !== 'object' || value === null) return value;
    const decoded: Record<string, unknown> = { ...value };
    for (const [name, decode] of decoders) {
      if (decoded[name] !== undefined) decoded[name] = decode(decoded[name]);
    }
    return decoded;
  };
}

function asItIs(value: unknown): unknown {
  return value;
}
