import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { JsonInvalid, MAX_JSON_DEPTH, parseJson } from '../src/exact-json.ts';
import { type JsonCase, jsonCases, plantTexts } from './exact-json-cases.ts';
import { sqlite } from './support/engines.ts';
import { bearer, startService } from './support/service.ts';

/** Starts a service and posts bodies to it. */
async function startPosting(t: TestContext) {
  const { url, token } = await startService(t, await sqlite.freshUrl(t));
  const headers = { ...bearer(await token()), 'content-type': 'application/json' };
  let lastId = 0;
  return {
    async post(
      body: Buffer<ArrayBuffer> | string,
    ): Promise<{ status: number; error: unknown; body: unknown }> {
      const response = await fetch(`${url}/plants`, { method: 'POST', headers, body });
      const answer: unknown = JSON.parse(await response.text());
      assert.ok(typeof answer === 'object' && answer !== null);
      return { status: response.status, error: 'error' in answer ? answer.error : undefined, body: answer };
    },
    async deletePlant(id: number): Promise<void> {
      const response = await fetch(`${url}/plants/${id}`, { method: 'DELETE', headers });
      assert.equal(response.status, 204);
    },
    /** A NewPlant with a new id and an unknown field that has the bytes as its value. */
    withUnknownField(value: Buffer | string): Buffer<ArrayBuffer> {
      lastId += 1;
      const before = `{"id":${lastId},"name":"x","unknown":`;
      return Buffer.concat([Buffer.from(before), Buffer.from(value), Buffer.from('}')]);
    },
  };
}

/** Cases under the rule they are about. */
function byRule(cases: readonly JsonCase[]): ReadonlyMap<string, readonly JsonCase[]> {
  return Map.groupBy(cases, ({ rule }) => rule);
}

/** Formats a case for the message of a failure. */
function show(bytes: Buffer): string {
  const text = JSON.stringify(bytes.toString('latin1'));
  return text.length > 80 ? `${text.slice(0, 80)}… (${bytes.length} bytes)` : text;
}

function nested(levels: number, [open, close]: readonly [string, string]): string {
  return `${open.repeat(levels)}0${close.repeat(levels)}`;
}

describe('the grammar of RFC 8259', () => {
  test('there are at least 200 cases, of both kinds, and JSON.parse agrees with all that are UTF-8', () => {
    assert.ok(jsonCases.length >= 200);
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
    for (const { bytes, valid } of jsonCases) {
      const parse = (): unknown => JSON.parse(decoder.decode(bytes));
      if (valid) assert.doesNotThrow(parse, show(bytes));
      else assert.throws(parse, show(bytes));
    }
  });

  test('every case as a whole body and as an unknown field', async (t) => {
    const { post, withUnknownField } = await startPosting(t);
    for (const [rule, cases] of byRule(jsonCases)) {
      await t.test(rule, async () => {
        for (const { bytes, valid } of cases) {
          const whole = await post(Buffer.from(bytes));
          const within = await post(withUnknownField(bytes));
          const found = [whole.status, whole.error, within.status, within.error];
          const expected = valid ? [400, 40000, 200, undefined] : [400, 40001, 400, 40001];
          assert.deepEqual(found, expected, show(bytes));
        }
      });
    }
  });

  test('a plant is a plant in whatever way its JSON is written', async (t) => {
    const { post, deletePlant } = await startPosting(t);
    for (const text of plantTexts) {
      const { status, body } = await post(text);
      assert.deepEqual([status, body], [200, { name: 'x' }], show(Buffer.from(text)));
      await deletePlant(1);
    }
  });

  test('an invalid text is rejected as no JSON even where its fields are invalid too', async (t) => {
    const { post } = await startPosting(t);
    for (const text of ['{"id":"1","name":1', '{"id":1.5,}', '[1', '"a', '{"name":null,"id":1,"tag":01}']) {
      assert.equal((await post(text)).error, 40001, text);
    }
  });
});

function messageOf(bytes: Buffer): string | undefined {
  try {
    parseJson(bytes, []);
    return undefined;
  } catch (error: unknown) {
    assert.ok(error instanceof JsonInvalid);
    assert.equal(error.name, 'JsonInvalid');
    return error.message;
  }
}

describe('parseJson', () => {
  const parse = (text: string): unknown => parseJson(Buffer.from(text), ['id', 'name']);

  test('accepts exactly what the grammar allows', () => {
    for (const { bytes, valid } of jsonCases) {
      assert.equal(messageOf(bytes) === undefined, valid, show(bytes));
      const within = Buffer.concat([Buffer.from('[{"a":'), bytes, Buffer.from('}]')]);
      assert.equal(messageOf(within) === undefined, valid, show(within));
    }
  });

  test('returns the fields that are asked for at the top level, of duplicates the last', () => {
    for (const [text, value] of [
      ['{}', {}],
      ['{"tag":"t","names":1,"nam":2,"Id":3}', {}],
      ['{"id":"a\\n\\ud800","name":""}', { id: 'a\n\ud800', name: '' }],
      ['{"id":true,"name":false}', { id: true, name: false }],
      ['{"id":null,"name":1.5}', { id: null, name: 1.5 }],
      ['{"id":[1],"name":{"id":2}}', { id: [], name: {} }],
      ['{"id":1,"id":2,"\\u0069d":3}', { id: 3n }],
      ['{"\\u006E\\u0061\\u006d\\u0065":"x","\\u0069":1,"i\\u0064s":2,"i\\n":3}', { name: 'x' }],
      ['{"\\t0069d":1,"i\\n0064":2}', {}],
      ['{"x":{"id":1},"y":[{"name":"x"}],"__proto__":{"id":2}}', {}],
    ] as const) {
      assert.deepEqual(parse(text), value, text);
    }
  });

  test('reports the name of each other field at the top level', () => {
    const names: string[] = [];
    const text =
      '{"id":1,"tags":{"inner":1},"\\u006eame":"a","\\u0074ags":[],"":0,"n\\u0000":1,"\\ud800":2,"Tag":"🌱"}';
    parseJson(Buffer.from(text), ['id', 'name', 'tag'], [], (nameOf) => void names.push(nameOf()));
    assert.deepEqual(names, ['tags', 'tags', '', 'n\0', '\ud800', 'Tag']);
  });

  test('returns a bigint for each number that is an integer', () => {
    for (const source of ['7', '7.0', '7e0', '70e-1', '0.7E+1', `7.${'0'.repeat(50_000)}`])
      assert.deepEqual(parse(`{"id":${source}}`), { id: 7n }, source.slice(0, 20));
    for (const [source, id] of [
      ['-0', 0n],
      ['-12', -12n],
      ['999999999999999', 999_999_999_999_999n],
      ['1000000000000001', 1_000_000_000_000_001n],
      ['9007199254740993', 9_007_199_254_740_993n],
      ['-9223372036854775808', -(2n ** 63n)],
      ['1.5', 1.5],
      ['1e400', Number.POSITIVE_INFINITY],
    ] as const) {
      assert.deepEqual(parse(`{"id":${source}}`), { id }, source);
    }
  });

  test('returns undefined for a text that is no object', () => {
    for (const text of ['[]', '[{"id":1}]', 'null', '1', '"id"', 'true'])
      assert.equal(parse(text), undefined);
  });

  test('an error names the problem and its place in characters', () => {
    for (const [text, message] of [
      ['', 'is empty; it must be a JSON object'],
      ['  ', 'is not JSON: expected a value at character 3, where the text ends'],
      ['\ufeff{}', 'is not JSON: it begins with a byte-order mark; send it without'],
      ['\uf000', 'is not JSON: expected a value at character 1'],
      ['{"é🌵":tru}', 'is not JSON: expected a value at character 7'],
      ['{"a":1 "b":2}', 'is not JSON: expected a comma or } at character 8'],
      ['{"a" 1}', 'is not JSON: expected a colon at character 6'],
      ['{"a":1,}', 'is not JSON: expected a field name in quotation marks at character 8'],
      ['[1', 'is not JSON: expected a comma or ] at character 3, where the text ends'],
      ['{}{}', 'is not JSON: expected the end of the text at character 3'],
      ['"a', 'is not JSON: expected a closing quotation mark at character 3, where the text ends'],
      ['"a\nb"', 'is not JSON: the control character at character 3 must be escaped'],
      ['"\\x"', 'is not JSON: expected one of " \\ / b f n r t u after the backslash at character 3'],
      ['"\\u00g0"', 'is not JSON: expected a hexadecimal digit at character 6'],
      ['-', 'is not JSON: expected a digit at character 2, where the text ends'],
      ['['.repeat(65), 'is nested too deep; the limit is 64 levels'],
    ] as const) {
      assert.equal(messageOf(Buffer.from(text)), message, text);
    }
    assert.equal(messageOf(Buffer.from([0x22, 0xff, 0x22])), 'is not UTF-8');
  });
});

describe('nesting', () => {
  const brackets: readonly (readonly [string, string])[] = [
    ['[', ']'],
    ['{"a":', '}'],
    ['[{"a":', '}]'],
  ];

  test(`${MAX_JSON_DEPTH} levels are read, one more is too deep`, async (t) => {
    const { post, withUnknownField } = await startPosting(t);
    for (const pair of brackets.slice(0, 2)) {
      assert.equal((await post(nested(MAX_JSON_DEPTH, pair))).error, 40000);
      assert.equal((await post(nested(MAX_JSON_DEPTH + 1, pair))).error, 40001);
      assert.equal((await post(withUnknownField(nested(MAX_JSON_DEPTH - 1, pair)))).status, 200);
      assert.equal((await post(withUnknownField(nested(MAX_JSON_DEPTH, pair)))).error, 40001);
    }
  });

  test('a body that is only nesting is rejected, closed or not', async (t) => {
    const { post, withUnknownField } = await startPosting(t);
    for (const pair of brackets) {
      for (const levels of [500, 2_500, 5_000]) {
        const deep = nested(levels, pair);
        const exact = `{"id":7.0,"name":"x","unknown":${deep}}`;
        for (const body of [deep, deep.slice(0, deep.length / 2), withUnknownField(deep), exact]) {
          const { status, error } = await post(body);
          assert.deepEqual([status, error], [400, 40001], `${levels} × ${pair.join('')}`);
        }
      }
    }
    for (const open of ['[', '{"a":', '[[{"a":']) {
      const { status, error } = await post(open.repeat(Math.floor(65_000 / open.length)));
      assert.deepEqual([status, error], [400, 40001], open);
    }
  });

  test('a wide body is not a deep one', async (t) => {
    const { post, withUnknownField } = await startPosting(t);
    for (const wide of [`[${'[],'.repeat(15_000)}[]]`, `{${'"a":{},'.repeat(8_000)}"b":[]}`]) {
      assert.equal((await post(withUnknownField(wide))).status, 200);
    }
  });
});

test('integers of number fields are numbers, those of other fields bigints', () => {
  const text = Buffer.from('{"id":7,"height":7.0,"name":"x"}');
  assert.deepEqual(parseJson(text, ['id', 'height', 'name'], ['height', 'name']), {
    id: 7n,
    height: 7,
    name: 'x',
  });
});
