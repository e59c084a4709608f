import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Static, Type } from '../src/schema.ts';
import { compileCheck, propertiesOf } from '../src/validation.ts';

const Bed = Type.Object({
  name: Type.String({ description: 'The name.' }),
  code: Type.Optional(Type.String({ minLength: 1, maxLength: 3 })),
  sunny: Type.Optional(Type.Boolean()),
  rows: Type.Array(
    Type.Object({ length: Type.Integer({ minimum: 1, maximum: 9 }), kind: Type.Enum(['herb', 'tree']) }),
  ),
});
type Bed = Static<typeof Bed>;

const bed: Bed = { name: 'South', rows: [{ length: 3, kind: 'herb' }] };
const check = compileCheck(Bed);

test('valid values → returned with their type', () => {
  for (const value of [
    bed,
    { ...bed, sunny: true },
    { ...bed, sunny: undefined },
    { ...bed, code: 'S' },
    { ...bed, other: 1 },
    { ...bed, rows: [] },
  ])
    assert.deepEqual(check(value), { value });
});

const invalid: readonly (readonly [title: string, value: unknown, field: string, rule: string])[] = [
  ['not an object', [], '', 'must be a JSON object'],
  ['null', null, '', 'must be a JSON object'],
  ['missing field, before an invalid one', { name: 7 }, 'rows', 'is required'],
  ['inherited field', Object.create(bed), 'name', 'is required'],
  ['undefined for a required field', { ...bed, name: undefined }, 'name', 'must be a string'],
  ['wrong type', { ...bed, name: 7 }, 'name', 'must be a string'],
  ['null for an optional field', { ...bed, sunny: null }, 'sunny', 'must be true or false'],
  ['not an array', { ...bed, rows: {} }, 'rows', 'must be an array'],
  ['invalid item', { ...bed, rows: [...bed.rows, 7] }, 'rows/1', 'must be a JSON object'],
  [
    'fraction',
    { ...bed, rows: [{ length: 1.5, kind: 'herb' }] },
    'rows/0/length',
    'must be an integer from 1 to 9',
  ],
  [
    'below the minimum',
    { ...bed, rows: [{ length: 0, kind: 'herb' }] },
    'rows/0/length',
    'must be an integer from 1 to 9',
  ],
  [
    'above the maximum',
    { ...bed, rows: [{ length: 10, kind: 'herb' }] },
    'rows/0/length',
    'must be an integer from 1 to 9',
  ],
  [
    'unknown name',
    { ...bed, rows: [{ length: 1, kind: 'moss' }] },
    'rows/0/kind',
    'must be one of herb, tree',
  ],
];
for (const [title, value, field, rule] of invalid)
  test(`${title} → ${field || 'the value'} ${rule}`, () => {
    assert.deepEqual(check(value), { violation: { field, rule } });
  });

test('refined schema → its rule and its words, also for a wrong type', () => {
  const Even = Type.Refine(
    Type.BigInt(),
    (value) => value % 2n === 0n,
    (value) => `must be even, not ${typeof value}`,
  );
  const checkEven = compileCheck(Even);
  assert.deepEqual(checkEven(4n), { value: 4n });
  assert.deepEqual(checkEven(5n), { violation: { field: '', rule: 'must be even, not bigint' } });
  assert.deepEqual(checkEven('4'), { violation: { field: '', rule: 'must be even, not string' } });
});

test('its JSON is a JSON Schema', () => {
  assert.deepEqual(JSON.parse(JSON.stringify(Bed)), {
    type: 'object',
    required: ['name', 'rows'],
    properties: {
      name: { type: 'string', description: 'The name.' },
      code: { type: 'string', minLength: 1, maxLength: 3 },
      sunny: { type: 'boolean' },
      rows: {
        type: 'array',
        items: {
          type: 'object',
          required: ['length', 'kind'],
          properties: {
            length: { type: 'integer', minimum: 1, maximum: 9 },
            kind: { type: 'string', enum: ['herb', 'tree'] },
          },
        },
      },
    },
  });
});

test('properties of a schema → by name; none for a schema without properties', () => {
  assert.equal(propertiesOf(Bed).name, Bed.properties.name);
  assert.deepEqual(Object.keys(propertiesOf(Bed)), ['name', 'code', 'sunny', 'rows']);
  assert.deepEqual(propertiesOf(Type.String()), {});
});

test('value that is invalid only while it is checked → invalid', () => {
  const names = [7, 'South'];
  const changing = {
    ...bed,
    get name() {
      return names.shift();
    },
  };
  assert.deepEqual(check(changing), { violation: { field: '', rule: 'is invalid' } });
});
