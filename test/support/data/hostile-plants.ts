import fc from 'fast-check';
import { INT64_MAX, INT64_MIN, type NewPlant } from '../../../src/plant.ts';

/** Texts with a special meaning in some format, terminal or spreadsheet. */
const PIECES = [
  ...['"', '""', "'", ',', ';', '\t', '\n', '\r', '\r\n', '\\', '\\n', '\u2028', '\u2029', '\u0085'],
  ...[
    '=1+1',
    '+1',
    '-1',
    '@SUM(A1)',
    '=cmd|',
    '\u0001',
    '\u001b[31m',
    '\u007f',
    '\ufeff',
    '\ufffd',
    '\uffff',
  ],
  ...[
    '🌱',
    '👩🏽‍🌾',
    'e\u0301',
    'é',
    'ä',
    '\u202eabc',
    'שלום',
    'نبات',
    '植物',
    '\ud83c\udf31',
    'NULL',
    '\\N',
    ' ',
    '#',
  ],
];

/**
 * Generates valid texts of plants: special texts, random characters, or an empty text. U+0000 and lone
 * surrogates are not valid.
 */
const hostileText = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.array(fc.constantFrom(...PIECES), { maxLength: 6 }).map((pieces) => pieces.join('')),
  },
  {
    weight: 2,
    arbitrary: fc.string({ unit: 'binary', maxLength: 12 }).map((text) => text.replaceAll('\0', '')),
  },
  { weight: 1, arbitrary: fc.constant('') },
);

const hostileFields = fc.record(
  { name: hostileText, tag: hostileText },
  { requiredKeys: ['name'], noNullPrototype: true },
);

/**
 * Returns plants with difficult texts, sorted by id. The ids include both ends of int64. The same seed always
 * gives the same plants.
 */
export function hostilePlants(count: number, seed = 42): readonly NewPlant[] {
  const ids = new Set([INT64_MIN, INT64_MAX, -1n, 0n, 2n ** 53n, 2n ** 53n + 1n, -(2n ** 53n) - 1n]);
  const random = fc.sample(fc.bigInt({ min: INT64_MIN, max: INT64_MAX }), { numRuns: count, seed });
  for (const id of random) if (ids.size < count) ids.add(id);
  const fields = fc.sample(hostileFields, { numRuns: ids.size, seed });
  return [...ids]
    .sort((a, b) => (a < b ? -1 : 1))
    .flatMap((id, index) => {
      const { name = '', ...rest } = fields[index] ?? {};
      return [{ id, name, ...rest }];
    });
}
