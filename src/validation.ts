import { type Static, type TSchema, Type } from 'typebox';
import type { TLocalizedValidationError } from 'typebox/error';
import { Compile } from 'typebox/schema';

interface Violation {
  /** The invalid field; empty when the whole value is invalid. */
  readonly field: string;
  /** The rule that the value breaks: `is required`, `must be a string`. */
  readonly demand: string;
}

type Checked<T> = { readonly value: T } | { readonly violation: Violation };

/** Compiles a schema to a check. It returns the value with its type, or the first violation. */
export function compileCheck<S extends TSchema>(schema: S): (value: unknown) => Checked<Static<S>> {
  const validator = Compile(schema);
  return (value) => {
    if (validator.Check(value)) return { value };
    const [, [first]] = validator.Errors(value);
    return {
      violation: first === undefined ? { field: '', demand: 'is invalid' } : explain(schema, value, first),
    };
  };
}

function explain(schema: TSchema, value: unknown, error: TLocalizedValidationError): Violation {
  if (error.keyword === 'required')
    return { field: error.params.requiredProperties[0] ?? '', demand: 'is required' };
  const field = error.instancePath.slice(1);
  const property = propertyOf(schema, field);
  if (property === undefined) return { field, demand: demandOf(schema, value, error) };
  return { field, demand: demandOf(property, Reflect.get(Object(value), field), error) };
}

/** The schema of a property. Works for a copied schema too, which lacks the marks of TypeBox. */
export function propertyOf(schema: TSchema, name: string): TSchema | undefined {
  const property: unknown = Reflect.get(propertiesOf(schema), name);
  return Type.IsSchema(property) ? property : undefined;
}

/** The properties of a schema. */
export function propertiesOf(schema: TSchema): object {
  const properties: unknown = Reflect.get(schema, 'properties');
  return typeof properties === 'object' && properties !== null ? properties : {};
}

function demandOf(schema: TSchema, value: unknown, error: TLocalizedValidationError): string {
  if (Type.IsRefine(schema)) return schema['~refine'][0]?.error(value) ?? error.message;
  if (Type.IsInteger(schema))
    return `must be an integer from ${Reflect.get(schema, 'minimum')} to ${Reflect.get(schema, 'maximum')}`;
  if (Type.IsBoolean(schema)) return 'must be true or false';
  if (Type.IsEnum(schema)) return `must be one of ${schema.enum.join(', ')}`;
  if (Type.IsObject(schema)) return 'must be a JSON object';
  return error.message;
}

/**
 * Compiles a parser from a string (of a path, query, flag, variable or CSV cell) to the type of a schema: integer,
 * boolean or string. An invalid string becomes NaN or stays a string; the check then rejects it.
 */
export function compileFromText(schema: TSchema | undefined): (text: unknown) => unknown {
  const read = readerOf(schema);
  return (text) => (typeof text === 'string' ? read(text) : text);
}

function readerOf(schema: TSchema | undefined): (text: string) => unknown {
  if (Type.IsBigInt(schema))
    return (text) => (/^-?(?:0|[1-9][0-9]*)$/.test(text) ? BigInt(text) : Number.NaN);
  if (Type.IsInteger(schema)) return (text) => (/^(?:0|[1-9][0-9]{0,14})$/.test(text) ? Number(text) : text);
  if (Type.IsBoolean(schema)) return (text) => (text === 'true' || text === 'false' ? text === 'true' : text);
  return (text) => text;
}
