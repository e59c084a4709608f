import type { TSchema } from 'typebox';
import { Refusal } from '../errors.ts';
import { compileCheck, fromText, propertyOf } from '../schema.ts';
import { headerCase } from './openapi.ts';

/** For Fastify: in place of its own compilers, which it would load at every start and never use here. */
export const withoutCompilers = {
  compilersFactory: { buildValidator: refuseToCompile, buildSerializer: refuseToCompile },
};

function refuseToCompile(): never {
  throw new Error('requests are checked by compileRequestCheck, and answers are rendered without schemas');
}

/** The check of one part of a request: texts become what the schema says, and the message names the part at fault. */
export function compileRequestCheck(schema: TSchema, part: string | undefined) {
  const check = compileCheck(schema);
  return (value: unknown) => {
    const checked = check(part === 'params' || part === 'querystring' ? decode(schema, value) : value);
    if ('value' in checked) return checked;
    const { field, demand } = checked.violation;
    const fault = part === 'querystring' && isRepeated(value, field) ? 'is given more than once' : demand;
    return { error: new Refusal(40000, `${nameOf(field, part)} ${fault}`) };
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

function decode(schema: TSchema, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([name, text]) => [
    name,
    fromText(propertyOf(schema, name), text),
  ]);
  return Object.fromEntries(entries);
}
