import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { MAX_JSON_DEPTH } from '../src/json.ts';
import { engines } from './engines.ts';
import { type JsonCase, jsonCases, plantTexts } from './json-cases.ts';
import { bearer, startService } from './service.ts';

/** Posts bodies to a service of its own. */
async function startPosting(t: TestContext) {
  const [engine] = engines;
  assert.ok(engine !== undefined);
  const { url, token } = await startService(t, await engine.freshUrl(t));
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
    /** A NewPlant with an id of its own and the bytes as the value of a field that nobody knows. */
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

/** A case as a reader of a failure wants it. */
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

  test('an invalid text is refused as no JSON even where its fields would be refused too', async (t) => {
    const { post } = await startPosting(t);
    for (const text of ['{"id":"1","name":1', '{"id":1.5,}', '[1', '"a', '{"name":null,"id":1,"tag":01}']) {
      assert.equal((await post(text)).error, 40001, text);
    }
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

  test('a body that is all nesting is refused, closed or not', async (t) => {
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
