/**
 * Creates schemas. A schema is a JSON Schema that also checks values and defines the TypeScript type of valid
 * values. The functions have the same interface as the schema library TypeBox, limited to what the service
 * needs. TypeBox itself is not used, since it slows the start (docs/decisions/0019-own-schemas.md).
 */

/** The first rule that a value breaks. */
export interface Violation {
  /** Name of the invalid field; empty when the whole value is invalid. */
  readonly field: string;
  /** The broken rule: `is required`, `must be a string`. */
  readonly rule: string;
}

/** JSON Schema keywords that describe values. Validation ignores them: `Refine` adds the check of a pattern or length. */
interface Keywords {
  readonly description?: string;
  readonly format?: string;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
}

/** A schema for values of a type. `JSON.stringify` leaves out its functions. */
export interface TSchema<T = unknown> extends Keywords {
  readonly type?: string;
  readonly '~is': (value: unknown) => value is T;
  /** Returns the rule that an invalid value breaks. */
  readonly '~violation': (value: unknown) => Violation;
}

/** The type of the values that a schema accepts. */
export type Static<S extends TSchema> = S extends TSchema<infer T> ? T : never;

const OPTIONAL = Symbol('optional');

export interface Optional {
  readonly [OPTIONAL]: true;
}

type Properties = Readonly<Record<string, TSchema>>;

type StaticObject<P extends Properties> = Flat<
  { [N in keyof P as P[N] extends Optional ? never : N]: Static<P[N]> } & {
    [N in keyof P as P[N] extends Optional ? N : never]?: Static<P[N]>;
  }
>;

type Flat<T> = { [N in keyof T]: T[N] };

interface TObject<P extends Properties = Properties> extends TSchema<StaticObject<P>> {
  readonly properties: P;
  readonly required?: readonly string[];
}

interface TArray<T = unknown> extends TSchema<T[]> {
  readonly items: TSchema<T>;
}

interface TInteger extends TSchema<number> {
  readonly minimum: number;
  readonly maximum: number;
}

interface TEnum<V extends string> extends TSchema<V> {
  readonly enum: readonly V[];
}

function checkedBy<T>(is: (value: unknown) => value is T, ruleOf: (value: unknown) => string): TSchema<T> {
  return { '~is': is, '~violation': (value) => ({ field: '', rule: ruleOf(value) }) };
}

function objectOf<const P extends Properties>(properties: P, keywords?: Keywords): TObject<P>;
function objectOf(properties: Properties, keywords: Keywords = {}): TObject {
  const fields = Object.entries(properties).map(
    ([name, schema]) => ({ name, schema, optional: isOptional(schema) }) as const,
  );
  const required = fields.filter(({ optional }) => !optional).map(({ name }) => name);
  const isValid = (value: object, { name, schema, optional }: (typeof fields)[number]): boolean => {
    const member: unknown = Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined;
    return member === undefined ? optional : schema['~is'](member);
  };
  return {
    type: 'object',
    ...(required.length > 0 && { required }),
    properties,
    ...keywords,
    '~is': (value): value is StaticObject<Properties> => {
      if (!isJsonObject(value)) return false;
      for (const field of fields) if (!isValid(value, field)) return false;
      return true;
    },
    '~violation': (value) => {
      if (!isJsonObject(value)) return { field: '', rule: 'must be a JSON object' };
      const missing = required.find((name) => !Object.hasOwn(value, name));
      if (missing !== undefined) return { field: missing, rule: 'is required' };
      const { name = '', schema } = fields.find((field) => !isValid(value, field)) ?? {};
      return violationOf(name, schema, Reflect.get(value, name));
    },
  };
}

function arrayOf<T>(items: TSchema<T>, keywords: Keywords = {}): TArray<T> {
  return {
    type: 'array',
    items,
    ...keywords,
    '~is': (value): value is T[] => Array.isArray(value) && value.every((item) => items['~is'](item)),
    '~violation': (value) => {
      if (!Array.isArray(value)) return { field: '', rule: 'must be an array' };
      const index = value.findIndex((item) => !items['~is'](item));
      return violationOf(String(index), items, value[index]);
    },
  };
}

function violationOf(name: string, schema: TSchema | undefined, value: unknown): Violation {
  const { field, rule } = schema?.['~violation'](value) ?? { field: '', rule: 'is invalid' };
  return { field: field === '' ? name : `${name}/${field}`, rule };
}

function isJsonObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isOptional(schema: TSchema): boolean {
  return OPTIONAL in schema;
}

export const Type = {
  Unknown: (): TSchema => ({
    ...checkedBy(
      (_value): _value is unknown => true,
      () => '',
    ),
  }),
  String: (keywords: Keywords = {}): TSchema<string> => ({
    type: 'string',
    ...keywords,
    ...checkedBy(
      (value) => typeof value === 'string',
      () => 'must be a string',
    ),
  }),
  Integer: (keywords: Keywords & Pick<TInteger, 'minimum' | 'maximum'>): TInteger => ({
    type: 'integer',
    ...keywords,
    ...checkedBy(
      (value): value is number =>
        Number.isInteger(value) && Number(value) >= keywords.minimum && Number(value) <= keywords.maximum,
      () => `must be an integer from ${keywords.minimum} to ${keywords.maximum}`,
    ),
  }),
  BigInt: (keywords: Keywords = {}): TSchema<bigint> => ({
    type: 'bigint',
    ...keywords,
    ...checkedBy(
      (value) => typeof value === 'bigint',
      () => 'must be an integer',
    ),
  }),
  Boolean: (keywords: Keywords = {}): TSchema<boolean> => ({
    type: 'boolean',
    ...keywords,
    ...checkedBy(
      (value) => typeof value === 'boolean',
      () => 'must be true or false',
    ),
  }),
  Enum: <const V extends string>(values: readonly V[], keywords: Keywords = {}): TEnum<V> => ({
    type: 'string',
    enum: values,
    ...keywords,
    ...checkedBy(
      (value): value is V => values.some((one) => one === value),
      () => `must be one of ${values.join(', ')}`,
    ),
  }),
  Array: arrayOf,
  Object: objectOf,
  Optional: <S extends TSchema>(schema: S): S & Optional => ({ ...schema, [OPTIONAL]: true }),
  /**
   * Adds the check `isValid` to a schema. `ruleOf` returns the broken rule for every invalid value. The
   * rules of the given schema are no longer used.
   */
  Refine: <T>(
    schema: TSchema<T>,
    isValid: (value: T) => boolean,
    ruleOf: (value: unknown) => string,
  ): TSchema<T> => ({
    ...schema,
    ...checkedBy((value): value is T => schema['~is'](value) && isValid(value), ruleOf),
  }),
  IsObject: (schema: TSchema): schema is TObject => schema.type === 'object',
  IsArray: (schema: TSchema): schema is TArray => schema.type === 'array',
  IsInteger: (schema: TSchema): boolean => schema.type === 'integer',
  IsBigInt: (schema: TSchema): boolean => schema.type === 'bigint',
  IsBoolean: (schema: TSchema): boolean => schema.type === 'boolean',
  IsOptional: isOptional,
};
