import { hash } from 'node:crypto';
import { type Static, Type } from './schema.ts';

export const INT64_MIN = -(2n ** 63n);
export const INT64_MAX = 2n ** 63n - 1n;

export const Int64 = Type.Refine(
  Type.BigInt({
    format: 'int64',
    description: 'The identification number of the plant, exact to the last bit.',
    examples: [7],
  }),
  (value: bigint) => value >= INT64_MIN && value <= INT64_MAX,
  (value: unknown) => `must be an integer from ${INT64_MIN} to ${INT64_MAX}${addedRule(value)}`,
);

// `compileTextParser` returns NaN for an integer in another form, such as `07` or `+7`.
function addedRule(value: unknown): string {
  if (Number.isNaN(value)) return ', without a plus sign or leading zeros';
  return typeof value === 'string' ? ', not a string' : '';
}

// Creates a schema for a text field. The pattern has `\x00` for U+0000: some generated clients use RE2, which
// does not support `\u`.
const text = (description: string) =>
  Type.Refine(
    Type.String({ description, pattern: '^[^\\x00]*$' }),
    (value) => value.isWellFormed() && !value.includes('\0'),
    () => 'must be a string without U+0000 and lone surrogates',
  );

const fields = {
  name: text('The name of the plant: any text without U+0000 and lone surrogates.'),
  tag: Type.Optional(
    text('Tag that specifies the type of the plant: any text without U+0000 and lone surrogates.'),
  ),
};

export const Plant = Type.Object(fields, {
  description: 'A plant as the service returns it.',
  examples: [{ name: 'Black alder', tag: 'Alnus glutinosa' }],
});
export type Plant = Static<typeof Plant>;

export const NewPlant = Type.Object(
  { ...fields, id: Int64 },
  {
    description: 'A plant to create. Fields other than these are ignored.',
    examples: [{ id: 7, name: 'Black alder', tag: 'Alnus glutinosa' }],
  },
);
export type NewPlant = Static<typeof NewPlant>;

/** Names of all fields of a NewPlant. */
export const newPlantFields: readonly string[] = Object.keys(NewPlant.properties);

/** Names of the fields of a Plant. JSON, CSV and the tables of the stores have the fields in this order. */
export const plantFields: readonly (keyof Plant)[] = Object.keys(fields).filter(isPlantField);

function isPlantField(name: string): name is keyof Plant {
  return Object.hasOwn(fields, name);
}

/** True for an optional field of a plant. */
export function isOptionalField(field: keyof Plant): boolean {
  return Type.IsOptional(fields[field]);
}

/** A plant as the store keeps it; an optional field without a value is null. */
export type PlantRow = { readonly owner: string; readonly id: bigint } & {
  readonly [F in keyof Plant]-?: undefined extends Plant[F] ? NonNullable<Plant[F]> | null : Plant[F];
};

/** Returns the row to store for a new plant. */
export function toPlantRow(owner: string, { id, name, tag }: NewPlant): PlantRow {
  return { owner, id, name, tag: tag ?? null };
}

/** A plant; optional fields without a value are missing or null. */
export type NullablePlant = { readonly [F in keyof Plant]: Plant[F] | PlantRow[F] };

/**
 * Renders a plant as JSON. The SQL queries that list plants, on SQLite and PostgreSQL, render each plant to
 * the same bytes.
 */
export function renderPlant({ name, tag }: NullablePlant): string {
  return JSON.stringify({ name, tag: tag ?? undefined } satisfies Record<keyof Plant, unknown>);
}

/** Max characters of an idempotency key. */
export const IDEMPOTENCY_KEY_LENGTH = 255;

/** Text of the rule for idempotency keys, for error messages. */
export const IDEMPOTENCY_KEY_RULE = `1 to ${IDEMPOTENCY_KEY_LENGTH} visible ASCII characters`;

export const IDEMPOTENCY_KEY = new RegExp(`^[!-~]{1,${IDEMPOTENCY_KEY_LENGTH}}$`);

/** True for a valid idempotency key. */
export function isIdempotencyKey(text: string): boolean {
  return IDEMPOTENCY_KEY.test(text);
}

const FIRST_VERSION_VALUES = ['id', 'name', 'tag'].length;

/**
 * Returns the SHA-256 of all fields of a plant, serialized as a JSON array to be unambiguous. The store keeps
 * this digest with the idempotency key. The digest shows whether a retry sends the same plant.
 */
export function digestPlant(plant: NullablePlant & Pick<PlantRow, 'id'>): Uint8Array {
  const values = [plant.id.toString(), ...plantFields.map((field) => plant[field] ?? null)];
  // Leaves out trailing absent fields. A field that a later version adds must not change the digest of plants
  // without that field.
  while (values.length > FIRST_VERSION_VALUES && values.at(-1) === null) values.pop();
  return hash('sha256', JSON.stringify(values), 'buffer');
}

/**
 * Returns the integer value of a JSON number (RFC 8259 §6), given as text: `7`, `7.0`, `70e-1`, `-0`. Returns
 * undefined if the value has a fraction, or too many digits for an int64.
 */
export function parseIntegerSource(source: string): bigint | undefined {
  const match = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/.exec(source);
  if (match === null) return undefined;
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = match;
  const digits = (whole + fraction).replace(/^0+/, '');
  const significant = digits.slice(0, lengthWithoutZeros(digits));
  if (significant === '') return 0n;
  const zeros = Number(exponent) - fraction.length + (digits.length - significant.length);
  if (zeros < 0 || significant.length + zeros > 19) return undefined;
  return BigInt(`${sign}${significant}${'0'.repeat(zeros)}`);
}

// Returns the number of digits before the trailing zeros. A regular expression such as /0+$/ would be slow,
// because it also tries all zeros inside the number.
function lengthWithoutZeros(digits: string): number {
  let length = digits.length;
  while (digits[length - 1] === '0') length -= 1;
  return length;
}
