import { createHash } from 'node:crypto';
import { Type } from 'typebox';

export const INT64_MIN = -(2n ** 63n);
export const INT64_MAX = 2n ** 63n - 1n;

// TypeBox compiles the bounds of a bigint to doubles, which would let 2^63 through: hence the exact check.
export const Int64 = Type.Refine(
  Type.BigInt({
    format: 'int64',
    description: 'The identification number of the plant, exact to the last bit.',
    examples: [7],
  }),
  (value: bigint) => value >= INT64_MIN && value <= INT64_MAX,
  (value: unknown) =>
    `must be an integer from ${INT64_MIN} to ${INT64_MAX}${typeof value === 'string' ? ', not a string' : ''}`,
);

const text = (description: string) =>
  Type.Refine(
    Type.String({ description }),
    (value) => value.isWellFormed() && !value.includes('\0'),
    () => 'must be a string without U+0000 and lone surrogates',
  );

const fields = {
  name: text('The name of the plant.'),
  tag: Type.Optional(text('Tag that specifies the type of the plant.')),
};

export const Plant = Type.Object(fields, {
  description: 'A plant as the service returns it.',
  examples: [{ name: 'Black alder', tag: 'Alnus glutinosa' }],
});
export type Plant = Type.Static<typeof Plant>;

export const NewPlant = Type.Object(
  { ...fields, id: Int64 },
  {
    description: 'A plant to create. Fields other than these are ignored.',
    examples: [{ id: 7, name: 'Black alder', tag: 'Alnus glutinosa' }],
  },
);
export type NewPlant = Type.Static<typeof NewPlant>;

/** The names of all fields of a NewPlant. */
export const newPlantFields: readonly string[] = Object.keys(NewPlant.properties);

/** The JSON of a plant, byte for byte as both engines render it in lists. */
export function renderPlant({ name, tag }: Plant): string {
  return JSON.stringify({ name, tag });
}

/** What an idempotency key must be, in words. */
export const IDEMPOTENCY_KEY_RULE = '1 to 255 visible ASCII characters';

/** Whether a text is what an idempotency key must be. */
export function isIdempotencyKey(text: string): boolean {
  return /^[\x21-\x7e]{1,255}$/.test(text);
}

/** What an idempotency key stands for: SHA-256 over all fields of the plant, unambiguously joined. */
export function digestPlant({ id, name, tag }: NewPlant): Uint8Array {
  return createHash('sha256')
    .update(JSON.stringify([id.toString(), name, tag]))
    .digest();
}

/**
 * The integer that the source text of a JSON number (RFC 8259 §6) stands for: `7`, `7.0`, `70e-1`, `-0`.
 * Undefined when the value has a fraction, or so many digits that no int64 can equal it.
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

// Not by a regular expression, which would try every run of zeros in the middle to its end.
function lengthWithoutZeros(digits: string): number {
  let length = digits.length;
  while (digits[length - 1] === '0') length -= 1;
  return length;
}
