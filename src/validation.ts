import { type TSchema, Type, type Violation } from './schema.ts';

type Checked<T> = { readonly value: T } | { readonly violation: Violation };

/**
 * Creates the check for a schema. The check returns the value with its type, or the first rule that the value
 * breaks.
 */
export function compileCheck<T>(schema: TSchema<T>): (value: unknown) => Checked<T> {
  return (value) => (schema['~is'](value) ? { value } : { violation: schema['~violation'](value) });
}

/**
 * Returns the names of the integer properties whose values fit a JavaScript number. Excludes int64 properties, such
 * as the id.
 */
export function numberFieldsOf(schema: TSchema): readonly string[] {
  const properties = Object.entries(propertiesOf(schema));
  return properties.filter(([, property]) => Type.IsInteger(property)).map(([name]) => name);
}

/** Returns the schemas of the properties of an object schema, by property name; none for other schemas. */
export function propertiesOf(schema: TSchema): Readonly<Record<string, TSchema>> {
  return Type.IsObject(schema) ? schema.properties : {};
}

/**
 * Creates a function that parses a string as the type of a schema: integer (an int64, or 0 to 15 digits), boolean or string. The string
 * comes from a path, query, flag, environment variable or CSV cell. An invalid string becomes NaN or null, or stays
 * a string, and then fails the check of the schema.
 */
export function compileTextParser(schema: TSchema): (text: unknown) => unknown {
  const read = readerOf(schema);
  return (text) => (typeof text === 'string' ? read(text) : text);
}

function readerOf(schema: TSchema): (text: string) => unknown {
  if (Type.IsBigInt(schema)) return parseBigInt;
  if (Type.IsInteger(schema)) return (text) => (/^(?:0|[1-9][0-9]{0,14})$/.test(text) ? Number(text) : text);
  if (Type.IsBoolean(schema)) return (text) => (text === 'true' || text === 'false' ? text === 'true' : text);
  return (text) => text;
}

/** Returns NaN for another form of an integer, such as 07, and null for other texts: for a string, the message would say that it is one. */
function parseBigInt(text: string): unknown {
  // 20 digits are beyond int64 already. All digits would take quadratic time.
  if (/^-?(?:0|[1-9][0-9]*)$/.test(text)) return BigInt(text.slice(0, 21));
  return /^[+-]?[0-9]+$/.test(text) ? Number.NaN : null;
}
