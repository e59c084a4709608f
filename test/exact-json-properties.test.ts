import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { JsonInvalid, parseJson } from '../src/exact-json.ts';
import { newPlantFields, parseIntegerSource } from '../src/plant.ts';
import { repetitions } from './support/repetitions.ts';

/** Marks the source of a number; no string of a parsed text can contain the mark. */
class Source {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

function withSources(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  return typeof value === 'number' ? new Source(String(context?.source)) : value;
}

/** The result of JSON.parse in the form that parseJson promises. */
function expectedOf(text: string): unknown {
  const value: unknown = JSON.parse(text, withSources);
  if (typeof value !== 'object' || value === null || Array.isArray(value) || value instanceof Source)
    return undefined;
  const members = newPlantFields.filter((name) => Object.hasOwn(value, name));
  return Object.fromEntries(members.map((name) => [name, outline(Reflect.get(value, name))]));
}

function outline(value: unknown): unknown {
  if (value instanceof Source) return parseIntegerSource(value.text) ?? Number(value.text);
  if (Array.isArray(value)) return [];
  return typeof value === 'object' && value !== null ? {} : value;
}

function attempt(run: () => unknown): unknown {
  try {
    return { value: run() };
  } catch (error: unknown) {
    if (error instanceof SyntaxError || error instanceof JsonInvalid) return 'invalid';
    throw error;
  }
}

function assertAgrees(text: string): void {
  const found = attempt(() => parseJson(Buffer.from(text), newPlantFields));
  assert.deepEqual(
    found,
    attempt(() => expectedOf(text)),
    JSON.stringify(text),
  );
}

const space = fc.string({ unit: fc.constantFrom(' ', '\t', '\n', '\r'), maxLength: 2 });

const anyString = fc
  .array(
    fc.oneof(
      fc.string({ unit: 'binary', maxLength: 3 }).map((text) => JSON.stringify(text).slice(1, -1)),
      fc.integer({ min: 0, max: 0xffff }).map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`),
      fc.constantFrom('\\/', '\\"', '\\\\', '\\ud83c\\uDF35', '\\uD800', '\u2028', '🌵', '\u007f'),
    ),
    { maxLength: 5 },
  )
  .map((parts) => `"${parts.join('')}"`);

const anyName = fc.oneof(
  fc.constantFrom('"id"', '"name"', '"tag"', '"\\u0069d"', '"\\u006eam\\u0065"', '"t\\u0061g"'),
  fc.constantFrom('"i"', '"names"', '"\\u0069"', '"\\n\\u0061me"', '"__proto__"', '"constructor"', '""'),
  anyString,
);

const digits = fc.string({ unit: fc.constantFrom(...'0123456789'), minLength: 1, maxLength: 24 });
const anyNumber = fc
  .tuple(
    fc.constantFrom('', '-'),
    fc.oneof(
      fc.constant('0'),
      fc.constant('9007199254740993'),
      digits.map((text) => `1${text}`),
    ),
    fc.oneof(
      fc.constant(''),
      digits.map((text) => `.${text}`),
      fc.constant('.000'),
    ),
    fc.oneof(fc.constant(''), fc.constantFrom('e0', 'E+2', 'e-2', 'e19', 'e-400', 'e400')),
  )
  .map((parts) => parts.join(''));

/** JSON texts that JSON.stringify would never write. */
const { anyText: anyValue, object: anyObject } = fc.letrec<{
  anyText: string;
  array: string;
  object: string;
}>((tie) => {
  const value = fc
    .tuple(
      space,
      fc.oneof(
        { maxDepth: 5, withCrossShrink: true },
        fc.constantFrom('true', 'false', 'null'),
        anyNumber,
        anyString,
        tie('array'),
        tie('object'),
      ),
      space,
    )
    .map((parts) => parts.join(''));
  const member = fc
    .tuple(space, anyName, space, value)
    .map(([a, name, b, text]) => `${a}${name}${b}:${text}`);
  return {
    anyText: value,
    array: fc.oneof(
      fc.array(value, { maxLength: 4 }).map((values) => `[${values.join(',')}]`),
      space.map((text) => `[${text}]`),
    ),
    object: fc.oneof(
      fc.array(member, { maxLength: 6 }).map((members) => `{${members.join(',')}}`),
      space.map((text) => `{${text}}`),
    ),
  };
});

const anyText = fc.oneof(anyValue, { weight: 3, arbitrary: anyObject });

const pieces = fc.constantFrom(
  ...'{}[]",:\\-+.eE0129tfn \t\n\r\0\u001f\u00a0\ufeffé🌵',
  'null',
  '\\u',
  '"id":',
);

/** A text with a few changed places, usually invalid JSON. */
const mutatedText = fc
  .tuple(
    anyText,
    fc.array(fc.tuple(fc.double({ min: 0, max: 1, noNaN: true }), fc.nat({ max: 3 }), pieces), {
      minLength: 1,
      maxLength: 3,
    }),
  )
  .map(([text, changes]) =>
    changes.reduce((changed, [where, removed, piece]) => {
      const at = Math.floor(where * changed.length);
      return (changed.slice(0, at) + piece + changed.slice(at + removed)).toWellFormed();
    }, text),
  );

test('any JSON text: the same id, name and tag as from JSON.parse', () => {
  fc.assert(fc.property(anyText, assertAgrees), { numRuns: repetitions(3_000) });
});

test('any changed JSON text: valid exactly if JSON.parse accepts it, with the same fields', () => {
  fc.assert(fc.property(mutatedText, assertAgrees), { numRuns: repetitions(6_000) });
});

test('any JSON value, written by JSON.stringify: the same fields as from JSON.parse', () => {
  const value = fc.oneof(fc.jsonValue(), fc.dictionary(fc.constantFrom(...newPlantFields), fc.jsonValue()));
  fc.assert(
    fc.property(value, fc.nat({ max: 3 }), (one, indent) => assertAgrees(JSON.stringify(one, null, indent))),
    { numRuns: repetitions(2_000) },
  );
});

test('any text, cut anywhere: never another error than JsonInvalid, and never a part of it in the message', () => {
  fc.assert(
    fc.property(anyText, fc.nat(), (text, at) => {
      const marked = Buffer.from(`{"x":"SECRET",${text}`).subarray(0, 14 + at);
      try {
        parseJson(marked, newPlantFields);
      } catch (error: unknown) {
        assert.ok(error instanceof JsonInvalid);
        assert.match(
          error.message,
          /^is not (?:UTF-8|JSON: expected .{1,60} at character \d+(?:, where the text ends)?)$/,
        );
      }
    }),
    { numRuns: repetitions(1_000) },
  );
});
