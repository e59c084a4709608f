import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, test } from 'node:test';
import { createPlantOperation } from '../src/http/plants/create-plant.ts';
import {
  digestPlant,
  INT64_MAX,
  INT64_MIN,
  Int64,
  isIdempotencyKey,
  NewPlant,
  Plant,
  parseIntegerSource,
  renderPlant,
  toPlantRow,
} from '../src/plant.ts';
import type { TSchema } from '../src/schema.ts';
import { compileCheck, compileTextParser, propertiesOf } from '../src/validation.ts';
import { FULL_PLANT } from './support/plants.ts';

describe('the integer value of a JSON number', () => {
  const integers: readonly (readonly [string, bigint])[] = [
    ['0', 0n],
    ['-0', 0n],
    ['7', 7n],
    ['-7', -7n],
    ['7.0', 7n],
    ['7.000', 7n],
    ['7e0', 7n],
    ['7E+0', 7n],
    ['7e-0', 7n],
    ['70e-1', 7n],
    ['0.7e1', 7n],
    ['0.07E2', 7n],
    ['1.5e1', 15n],
    ['1.50e1', 15n],
    ['120', 120n],
    ['12e1', 120n],
    ['1.2e2', 120n],
    ['1200e-1', 120n],
    ['-1.25e2', -125n],
    ['1e18', 10n ** 18n],
    ['1e018', 10n ** 18n],
    ['1000000000000000000', 10n ** 18n],
    ['9007199254740992', 2n ** 53n],
    ['9007199254740993', 2n ** 53n + 1n],
    ['9007199254740993.0', 2n ** 53n + 1n],
    ['90071992547409930e-1', 2n ** 53n + 1n],
    ['9223372036854775807', INT64_MAX],
    ['-9223372036854775808', INT64_MIN],
    ['9.223372036854775807e18', INT64_MAX],
    ['-92233720368547758080.00e-1', INT64_MIN],
    ['0.0', 0n],
    ['-0.000', 0n],
    ['0e0', 0n],
    ['0e5', 0n],
    ['0e-5', 0n],
    ['0e99999999999999999999', 0n],
    ['-0.0e-99999999999999999999', 0n],
    [`${'0'.repeat(100)}7`, 7n],
    [`7.${'0'.repeat(1_000)}`, 7n],
    [`7${'0'.repeat(1_000)}e-1000`, 7n],
    [`0.${'0'.repeat(999)}7e1000`, 7n],
  ];
  const notIntegers = [
    '1.5',
    '-0.5',
    '0.1',
    '7.0000000000000000000000000000000001',
    '9007199254740993.5',
    '7e-1',
    '70e-2',
    '15e-1',
    '1e-1',
    '1e-400',
    '1e-99999999999999999999',
    '123456789012345678.9',
  ];
  const tooManyDigits = [
    '1e19',
    '12345678901234567890',
    '-1e400',
    '1e99999999999999999999',
    '0.1e21',
    '92233720368547758070',
  ];
  const notNumbers = [
    '',
    '-',
    '+7',
    '.5',
    '5.',
    'e5',
    '1e',
    '0x10',
    '1_000',
    'NaN',
    'Infinity',
    ' 7',
    '7 ',
    '7n',
    '7,0',
    '--7',
    '٣',
  ];

  test('is exact in every notation', () => {
    for (const [source, value] of integers) assert.equal(parseIntegerSource(source), value, source);
  });

  test('is undefined for a number with a fraction', () => {
    for (const source of notIntegers) assert.equal(parseIntegerSource(source), undefined, source);
  });

  test('is undefined for more digits than an int64 has', () => {
    for (const source of tooManyDigits) assert.equal(parseIntegerSource(source), undefined, source);
  });

  test('is undefined for a text that is not a number', () => {
    for (const source of notNumbers) assert.equal(parseIntegerSource(source), undefined, source);
  });

  test('takes linear time', () => {
    const before = process.cpuUsage();
    for (const source of [
      `1${'0'.repeat(60_000)}1`,
      `1.${'0'.repeat(60_000)}1`,
      `${'10'.repeat(30_000)}1e-5`,
      `${'0'.repeat(60_000)}.${'0'.repeat(60_000)}1`,
    ]) {
      assert.equal(parseIntegerSource(source), undefined);
    }
    // Quadratic time is seconds.
    assert.ok(process.cpuUsage(before).user < 500_000);
  });
});

describe('a new plant', () => {
  const check = compileCheck(NewPlant);
  const violationOf = (value: unknown): unknown => {
    const checked = check(value);
    return 'violation' in checked ? [checked.violation.field, checked.violation.rule] : undefined;
  };

  test('has an id that is an exact int64', () => {
    for (const id of [INT64_MIN, -1n, 0n, 2n ** 53n + 1n, INT64_MAX])
      assert.deepEqual(check({ id, name: '' }), { value: { id, name: '' } });
    const rule = `must be an integer from ${INT64_MIN} to ${INT64_MAX}`;
    for (const id of [INT64_MIN - 1n, INT64_MAX + 1n, 2n ** 64n, 7, true, null, [7n]])
      assert.deepEqual(violationOf({ id, name: '' }), ['id', rule]);
    assert.deepEqual(violationOf({ id: '7', name: '' }), ['id', `${rule}, not a string`]);
  });

  test('has an id that, as a text, is a plain integer; the message names the fault', () => {
    const parse = compileTextParser(Int64);
    for (const text of [String(INT64_MIN), '-0', '0', String(INT64_MAX)])
      assert.equal(violationOf({ id: parse(text), name: '' }), undefined, text);
    const rule = `must be an integer from ${INT64_MIN} to ${INT64_MAX}`;
    for (const text of ['07', '+7', '-07', '00', `0${'1'.repeat(30)}`])
      assert.deepEqual(
        violationOf({ id: parse(text), name: '' }),
        ['id', `${rule}, without a plus sign or leading zeros`],
        text,
      );
    const tooLarge = [
      '9223372036854775808',
      '-9223372036854775809',
      `1${'0'.repeat(19)}`,
      `-1${'0'.repeat(19)}`,
    ];
    for (const text of [...tooLarge, '1'.repeat(60_000), '', '1.5', '1e3', 'alder', ' 7', '7\n', '-', '0x7'])
      assert.deepEqual(violationOf({ id: parse(text), name: '' }), ['id', rule], text);
  });

  test('has a name and may have a tag: any text that a store can keep', () => {
    const rule = 'must be a string without U+0000 and lone surrogates';
    for (const text of ['', ' ', '🌱', '\u{10ffff}', '\ufffd', 'x'.repeat(100_000)])
      assert.equal(violationOf({ id: 1n, name: text, tag: text }), undefined);
    for (const text of ['\0', 'a\0b', '\ud800', 'a\udfff', '\udc00\ud800', 7, null, {}, ['a']]) {
      assert.deepEqual(violationOf({ id: 1n, name: text }), ['name', rule]);
      assert.deepEqual(violationOf({ id: 1n, name: '', tag: text }), ['tag', rule]);
    }
  });

  test('is an object with the required fields', () => {
    assert.deepEqual(violationOf({ name: '' }), ['id', 'is required']);
    assert.deepEqual(violationOf({ id: 1n }), ['name', 'is required']);
    for (const value of [null, 7, 'plant', true, undefined])
      assert.deepEqual(violationOf(value), ['', 'must be a JSON object']);
  });
});

test('text of an id → a bigint; of more digits than int64 has, the first are converted', () => {
  const read = compileTextParser(Int64);
  assert.equal(read('-9223372036854775808'), -(2n ** 63n));
  assert.equal(read('9999999999999999999'), 9_999_999_999_999_999_999n);
  assert.equal(read('9'.repeat(60_000)), 10n ** 21n - 1n);
});

test('schemas → each is described, and its examples are full plants or ids', () => {
  for (const schema of [Plant, NewPlant]) {
    const fields = schema.properties;
    for (const { description } of [schema, ...Object.values(fields)]) assert.match(description ?? '', /\w/);
    const [example, ...others] = schema.examples ?? [];
    assert.ok(typeof example === 'object' && example !== null && others.length === 0);
    assert.deepEqual(Object.keys(example).sort(), Object.keys(fields).sort());
    assert.ok(Object.values(example).every((value) => value !== ''));
  }
  assert.deepEqual([Int64.format, Int64.examples], ['int64', [7]]);
  for (const { pattern } of Object.values(Plant.properties).filter(({ type }) => type === 'string'))
    assert.deepEqual(
      ['', 'Alder', 'Al\nder', '\0', 'Al\0der'].map((text) => new RegExp(pattern ?? '').test(text)),
      [true, true, true, false, false],
    );
});

// Validation ignores these keywords of a text: `Refine` must add the check. Not every field has a limit; the key has two.
test('limits that a schema publishes → a value at the limit is valid, one beyond it is not', () => {
  const key = createPlantOperation.schema.headers.properties['idempotency-key'];
  const schemas = { ...propertiesOf(NewPlant), 'idempotency-key': key };
  const examples = new Map<string, unknown>(Object.entries(FULL_PLANT)).set('idempotency-key', 'key');
  assert.equal(valuesAtLimits(key, 'key').length, 2);
  for (const [name, schema] of Object.entries(schemas))
    for (const [valid, invalid] of valuesAtLimits(schema, examples.get(name))) {
      assert.ok(schema['~is'](valid), `${name}: ${valid} is invalid`);
      assert.ok(!schema['~is'](invalid), `${name}: ${invalid} is valid`);
    }
});

/** Returns a valid and an invalid value for each limit of a schema. Texts are the example, cut or with its end repeated. */
function valuesAtLimits(schema: TSchema, example: unknown): (readonly [unknown, unknown])[] {
  const limits: { minLength?: number; maxLength?: number; minimum?: number; maximum?: number } = schema;
  const { minLength = 0, maxLength, minimum, maximum } = limits;
  const whole = String(example);
  const text = (length: number): string => whole.padEnd(length, whole.at(-1)).slice(0, length);
  const values: (readonly [unknown, unknown])[] = [];
  if (minLength > 0) values.push([text(minLength), text(minLength - 1)]);
  if (maxLength !== undefined) values.push([text(maxLength), text(maxLength + 1)]);
  if (minimum !== undefined) values.push([minimum, minimum - 1]);
  if (maximum !== undefined) values.push([maximum, maximum + 1]);
  return values;
}

test('row of a plant → an absent tag is null, an empty one stays', () => {
  const plant = { id: 7n, name: 'Fern' };
  const row = { ...toPlantRow('alice', plant), owner: 'alice', ...plant, tag: null };
  assert.deepEqual(toPlantRow('alice', plant), row);
  for (const tag of ['', 'x']) assert.deepEqual(toPlantRow('alice', { ...plant, tag }), { ...row, tag });
});

test('idempotency key → 1 to 255 visible ASCII characters', () => {
  for (const key of ['a', '!', '~', 'a"b', 'x'.repeat(255)]) assert.equal(isIdempotencyKey(key), true, key);
  for (const key of ['', ' ', ' a', 'a ', 'a b', 'ä', '\x7f', 'a\n', 'x'.repeat(256)])
    assert.equal(isIdempotencyKey(key), false, key);
});

describe('the digest of a plant', () => {
  test('is that of earlier versions, which a store has kept', () => {
    const digest = (text: string): string => createHash('sha256').update(text).digest('hex');
    const hex = (plant: NewPlant): string => Buffer.from(digestPlant(plant)).toString('hex');
    assert.equal(hex({ id: 7n, name: 'Fern' }), digest('["7","Fern",null]'));
    assert.equal(hex({ id: -7n, name: '', tag: '' }), digest('["-7","",""]'));
    assert.equal(hex({ id: 7n, name: 'Fern', tag: 'x' }), digest('["7","Fern","x"]'));
  });

  test('is that of its row in the store', () => {
    for (const plant of [
      { id: 7n, name: 'Fern' },
      { id: -7n, name: '', tag: '' },
    ] satisfies NewPlant[])
      assert.deepEqual(digestPlant(toPlantRow('alice', plant)), digestPlant(plant));
  });

  const digest = (id: bigint, name: string, tag?: string): string =>
    Buffer.from(digestPlant({ id, name, ...(tag !== undefined && { tag }) })).toString('hex');

  test('is the same for the same plant', () => {
    assert.equal(digest(1n, 'a', 'b'), digest(1n, 'a', 'b'));
    assert.match(digest(1n, 'a'), /^[0-9a-f]{64}$/);
  });

  test('differs for different plants, however the text is split into fields', () => {
    const digests = [
      digest(1n, 'a'),
      digest(1n, 'a', ''),
      digest(1n, '', 'a'),
      digest(1n, 'a', 'null'),
      digest(1n, 'a","b'),
      digest(1n, 'a', 'b'),
      digest(1n, 'ab'),
      digest(11n, 'a'),
      digest(-1n, 'a'),
      digest(2n ** 53n, 'a'),
      digest(2n ** 53n + 1n, 'a'),
      digest(1n, 'A'),
      digest(1n, 'é'),
      digest(1n, 'e\u0301'),
    ];
    assert.equal(new Set(digests).size, digests.length);
  });
});

describe('the JSON of a plant', () => {
  const plants: readonly Plant[] = [
    { name: '' },
    { name: 'Black alder', tag: 'Alnus glutinosa' },
    { name: '', tag: '' },
    { name: '"\\/\b\f\n\r\t\u0001\u001f\u007f', tag: '\u0080\u2028\u2029\ufeff\uffff' },
    { name: '🌱 שלום e\u0301', tag: "it's" },
  ];

  test('has only the name, and the tag if present', () => {
    assert.equal(renderPlant({ name: 'a' }), '{"name":"a"}');
    assert.equal(renderPlant({ name: 'a', tag: '' }), '{"name":"a","tag":""}');
    const more = { tag: 'b', id: 7n, name: 'a', other: 1 };
    assert.equal(renderPlant(more), '{"name":"a","tag":"b"}');
  });

  // So are lists of every engine (test/store/contract/plants.ts).
  test('is equal to that of JSON.stringify, byte for byte', () => {
    for (const plant of plants) assert.equal(renderPlant(plant), JSON.stringify(plant));
  });
});
