import type { ErrorCode } from '../../../src/api-errors.ts';
import type { Header, RawRequest } from '../clients/raw-http.ts';
import { BODY_LIMIT } from './costly-bodies.ts';

/**
 * One row of the API tests: a request and its expected response. Each row has a separate owner, so rows are
 * independent. In header values, paths and raw messages, `{token}` means the token of the row. In a path,
 * `{next}` means the URL in the last `Link` header of the responses to `before`. `{cursor}` means the cursor
 * in this URL.
 */
export interface Scenario extends RawRequest {
  /** The rule that the request tests. Titles are unique. */
  readonly title: string;
  /** Base path of the service; none by default. */
  readonly basePath?: '/v1';
  /** Plants that exist before the request; by default the caller owns them. */
  readonly given?: readonly GivenPlant[];
  /** Requests to send before the tested one, with a token that has all scopes. */
  readonly before?: readonly Exchange[];
  /** Kind of the caller's token; by default it has both scopes. */
  readonly token?: TokenKind;
  /** Values of the `Authorization` headers; `Bearer {token}` by default. */
  readonly authorization?: readonly string[];
  /** The complete message, if method, path, headers and body cannot express it. */
  readonly raw?: string;
  /** True when the client ends its sending side after the message. */
  readonly endsEarly?: true;
  readonly status: number;
  /** The error code in the expected response. */
  readonly error?: ErrorCode;
  /** Word that the error message must contain: the field, parameter or header at fault. */
  readonly names?: string;
  /** The expected body of a success response, as exact text or a pattern. */
  readonly answer?: string | RegExp;
  /** Expected response headers by lower-case name; null for a header that must be absent. */
  readonly answers?: Readonly<Record<string, string | RegExp | null>>;
  /** The expected methods in the header `Allow`, in alphabetical order. */
  readonly allows?: readonly string[];
  /** Statuses of the interim responses (1xx) that must precede the final response; none by default. */
  readonly interim?: readonly number[];
  /**
   * Title of another row. Both rows must get the same response, except headers that differ in every response.
   */
  readonly sameAs?: string;
  /** Requests to send after the tested one, with a token that has all scopes. */
  readonly after?: readonly Exchange[];
}

interface GivenPlant {
  readonly id: bigint;
  readonly name: string;
  readonly tag?: string;
  readonly of?: 'another owner';
}

export interface Exchange extends RawRequest {
  readonly by?: 'another owner';
  readonly status: number;
  readonly answer?: string;
}

/** Kinds of tokens: `unknown` was never created, `mistyped` has a wrong checksum. */
export type TokenKind = 'full' | 'reader' | 'writer' | 'expired' | 'revoked' | 'unknown' | 'mistyped';

interface ScenarioGroup {
  readonly section: string;
  readonly rows: readonly Scenario[];
}

const JSON_CONTENT: readonly Header[] = [['Content-Type', 'application/json']];
const COLLECTION = ['GET', 'HEAD', 'OPTIONS', 'POST'];
const ITEM = ['DELETE', 'OPTIONS'];
const PAGE_ONLY = ['GET', 'HEAD', 'OPTIONS'];

const fern = '{"id":7,"name":"Fern","tag":"Polypodium"}';
const fernBack = '{"name":"Fern","tag":"Polypodium"}';
const aFern: GivenPlant = { id: 7n, name: 'Fern', tag: 'Polypodium' };
const three: readonly GivenPlant[] = [
  { id: 3n, name: 'c' },
  { id: -1n, name: 'a' },
  { id: 2n, name: 'b', tag: '' },
];
const threeBack = '[{"name":"a"},{"name":"b","tag":""},{"name":"c"}]';

function posts(body: string | Uint8Array, headers = JSON_CONTENT) {
  return { method: 'POST', path: '/plants', headers, body };
}

function lists(query = '') {
  return { method: 'GET', path: `/plants${query}` };
}

function deletes(id: string) {
  return { method: 'DELETE', path: `/plants/${id}` };
}

const good = 'Host: plants.test\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n';

function rejected(error: ErrorCode, names?: string) {
  return { status: Math.floor(error / 100), error, ...(names === undefined ? {} : { names }) };
}

function succeeds(answer: string, answers: Readonly<Record<string, string | RegExp | null>> = {}) {
  return { status: 200, answer, answers };
}

function thenLists(answer: string): Exchange {
  return { ...lists(), status: 200, answer };
}

function thenHas(id: string | bigint): Exchange {
  return { ...deletes(String(id)), status: 204 };
}

function thenLacks(id: string | bigint): Exchange {
  return { ...deletes(String(id)), status: 404 };
}

function withKey(key: string): readonly Header[] {
  return [...JSON_CONTENT, ['Idempotency-Key', key]];
}

/** Builds the body of a create, of exactly this many bytes, and the expected body of its response. */
function plantOfSize(bytes: number): { body: string; back: string } {
  const [start, end] = ['{"id":7,"name":"', '"}'];
  const name = 'a'.repeat(bytes - start.length - end.length);
  return { body: `${start}${name}${end}`, back: `{"name":"${name}"}` };
}

function nested(levels: number): string {
  return `{"id":7,"name":"Fern","x":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`;
}

const creation: readonly Scenario[] = [
  {
    title: 'createPlant answers 200 with name and tag, without the id',
    ...posts(fern),
    ...succeeds(fernBack, { 'content-type': 'application/json', 'idempotent-replayed': null }),
    after: [thenLists(`[${fernBack}]`)],
  },
  {
    title: 'a plant without a tag is returned and listed without one',
    ...posts('{"id":7,"name":"Fern"}'),
    ...succeeds('{"name":"Fern"}'),
    after: [thenLists('[{"name":"Fern"}]')],
  },
  {
    title: 'an empty tag is kept',
    ...posts('{"id":7,"name":"Fern","tag":""}'),
    ...succeeds('{"name":"Fern","tag":""}'),
    after: [thenLists('[{"name":"Fern","tag":""}]')],
  },
  {
    title: 'unknown fields are neither stored nor echoed',
    ...posts('{"colour":[1,{"id":9}],"id":7,"Name":"x","name":"Fern","owner":"mallory"}'),
    ...succeeds('{"name":"Fern"}'),
    after: [thenLists('[{"name":"Fern"}]')],
  },
  {
    title: 'fields called __proto__, constructor and toString are unknown fields',
    ...posts(
      '{"__proto__":{"tag":"x"},"constructor":{"prototype":{"tag":"x"}},"toString":1,"id":7,"name":"Fern"}',
    ),
    ...succeeds('{"name":"Fern"}'),
    after: [thenLists('[{"name":"Fern"}]')],
  },
  {
    title: 'a field inside __proto__ is not a field of the plant',
    ...posts('{"__proto__":{"id":7},"name":"Fern"}'),
    ...rejected(40000, 'id'),
    after: [thenLists('[]')],
  },
  {
    title: 'duplicate field: the last one counts',
    ...posts('{"id":1,"name":"first","tag":null,"id":7,"name":"last","tag":"last"}'),
    ...succeeds('{"name":"last","tag":"last"}'),
    after: [thenLacks('1'), thenHas('7')],
  },
  {
    title: 'duplicate id: the last one counts, exactly',
    ...posts('{"id":9007199254740993,"name":"Fern","id":9007199254740995.0}'),
    ...succeeds('{"name":"Fern"}'),
    after: [thenLacks('9007199254740993'), thenLacks('9007199254740996'), thenHas('9007199254740995')],
  },
  {
    title: 'duplicate id: a valid first one does not count',
    ...posts('{"id":7,"name":"Fern","id":7.5}'),
    ...rejected(40000, 'id'),
  },
  {
    title: 'duplicate tag: an invalid last one counts',
    ...posts('{"id":7,"name":"Fern","tag":"x","tag":null}'),
    ...rejected(40000, 'tag'),
  },
  {
    title: 'a field name may be written with escapes',
    ...posts('{"\\u0069d":9007199254740993,"n\\u0061me":"Fern"}'),
    ...succeeds('{"name":"Fern"}'),
    after: [thenLacks('9007199254740992'), thenHas('9007199254740993')],
  },
  {
    title: 'an id inside another field is ignored',
    ...posts('{"x":{"id":1.5},"id":9007199254740993,"y":[{"id":"z"}],"name":"Fern"}'),
    ...succeeds('{"name":"Fern"}'),
    after: [thenHas('9007199254740993')],
  },
  {
    title: 'field names are case-sensitive',
    ...posts('{"ID":7,"name":"Fern"}'),
    ...rejected(40000, 'id'),
  },
  { title: 'a plant without a name is rejected', ...posts('{"id":7}'), ...rejected(40000, 'name') },
  { title: 'an empty object is rejected', ...posts('{}'), ...rejected(40000) },
  ...['null', '7', 'true', '["Fern"]', '{"x":"Fern"}'].flatMap((source): Scenario[] => [
    {
      title: `the name ${source} is rejected`,
      ...posts(`{"id":7,"name":${source}}`),
      ...rejected(40000, 'name'),
      after: [thenLacks('7')],
    },
    {
      title: `the tag ${source} is rejected`,
      ...posts(`{"id":7,"name":"Fern","tag":${source}}`),
      ...rejected(40000, 'tag'),
      after: [thenLacks('7')],
    },
  ]),
  {
    title: 'an id that is taken is rejected, and the first plant stays',
    given: [aFern],
    ...posts('{"id":7,"name":"Oak"}'),
    ...rejected(40002, 'id'),
    after: [thenLists(`[${fernBack}]`)],
  },
  {
    title: 'an id that is taken is rejected even if the plant is identical',
    given: [aFern],
    ...posts(fern),
    ...rejected(40002, 'id'),
  },
  {
    title: 'an id that another owner uses is free',
    given: [{ ...aFern, of: 'another owner' }],
    ...posts('{"id":7,"name":"Oak"}'),
    ...succeeds('{"name":"Oak"}'),
    after: [thenLists('[{"name":"Oak"}]'), { ...thenLists(`[${fernBack}]`), by: 'another owner' }],
  },
  {
    title: 'an id is free again after its plant is deleted',
    given: [aFern],
    before: [thenHas('7')],
    ...posts('{"id":7,"name":"Oak"}'),
    ...succeeds('{"name":"Oak"}'),
  },
];

/** JSON numbers with the integers that they represent. */
const integers: readonly (readonly [source: string, id: string])[] = [
  ['7', '7'],
  ['0', '0'],
  ['-7', '-7'],
  ['-0', '0'],
  ['-0.0e5', '0'],
  ['7.0', '7'],
  ['7e0', '7'],
  ['7E+0', '7'],
  ['70e-1', '7'],
  ['0.7e1', '7'],
  ['-700.00e-2', '-7'],
  ['0e999999999999999999', '0'],
  ['7e00000000000000000000', '7'],
  ['1e18', '1000000000000000000'],
  ['10000000000000000000e-1', '1000000000000000000'],
  ['9007199254740992', '9007199254740992'],
  ['9007199254740993', '9007199254740993'],
  ['9007199254740993.0', '9007199254740993'],
  ['9.007199254740993e15', '9007199254740993'],
  ['-90071992547409930e-1', '-9007199254740993'],
  ['9223372036854775806', '9223372036854775806'],
  ['9223372036854775807', '9223372036854775807'],
  ['-9223372036854775807', '-9223372036854775807'],
  ['-9223372036854775808', '-9223372036854775808'],
  ['9223372036854775807.000', '9223372036854775807'],
  ['9.223372036854775807e18', '9223372036854775807'],
  ['-922337203685477580800e-2', '-9223372036854775808'],
  [`7.${'0'.repeat(400)}`, '7'],
  [`7${'0'.repeat(400)}e-400`, '7'],
  [`0.${'0'.repeat(399)}7e400`, '7'],
];

/** JSON values that are not an int64. */
const notIds: readonly string[] = [
  '1.5',
  '-0.5',
  '1e-1',
  '1.00000000000000000001',
  '0.99999999999999999999',
  '9007199254740993.5',
  '9223372036854775807.5',
  '9223372036854775808',
  '-9223372036854775809',
  '9223372036854775808.0',
  '922337203685477580.8e1',
  '9.2233720368547758075e18',
  '18446744073709551623',
  '1e19',
  '1e400',
  '-1e400',
  '1e-400',
  '1e999999999999999999',
  '-1e-999999999999999999',
  '9'.repeat(5_000),
  '"7"',
  '""',
  '"9223372036854775807"',
  'true',
  'false',
  'null',
  '[7]',
  '{"id":7}',
];

/** Texts that look like numbers but are not valid JSON. */
const notNumbers: readonly string[] = [
  '07',
  '+7',
  '.7',
  '7.',
  '0x7',
  '7e',
  '-',
  '- 7',
  'NaN',
  '-Infinity',
  '7n',
  '7_0',
];

const ids: readonly Scenario[] = [
  ...integers.map(
    ([source, id]): Scenario => ({
      title: `the id ${brief(source)} in a body is ${id}, and neither of its neighbours`,
      given: neighboursOf(BigInt(id)),
      ...posts(`{"id":${source},"name":"Fern"}`),
      ...succeeds('{"name":"Fern"}'),
      after: [
        { ...thenHas(id) },
        thenLists(JSON.stringify(neighboursOf(BigInt(id)).map(({ name }) => ({ name })))),
      ],
    }),
  ),
  ...notIds.map(
    (source): Scenario => ({
      title: `the id ${brief(source)} in a body is rejected`,
      ...posts(`{"id":${source},"name":"Fern"}`),
      ...rejected(40000, 'id'),
      after: [thenLists('[]')],
    }),
  ),
  ...notNumbers.map(
    (source): Scenario => ({
      title: `the id ${source} in a body is not JSON`,
      ...posts(`{"id":${source},"name":"Fern"}`),
      ...rejected(40001),
      after: [thenLists('[]')],
    }),
  ),
  { title: 'a plant without an id is rejected', ...posts('{"name":"Fern"}'), ...rejected(40000, 'id') },
];

function neighboursOf(id: bigint): readonly GivenPlant[] {
  const both = [
    { id: id - 1n, name: 'below' },
    { id: id + 1n, name: 'above' },
  ];
  return both.filter((plant) => BigInt.asIntN(64, plant.id) === plant.id);
}

function brief(text: string): string {
  return text.length <= 40 ? text : `${text.slice(0, 16)}…${text.slice(-8)} of ${text.length} characters`;
}

/** Strings that the service must return unchanged. */
const texts: Readonly<Record<string, string>> = {
  'the empty string': '',
  spaces: '  ',
  'a composed letter': '\u00e9',
  'a letter with a combining mark': 'e\u0301',
  'a compatibility character': '\ufb01',
  'an emoji': '🌵',
  'an emoji of many code points': '👩🏽‍🌾',
  'letters from right to left': 'نبات\u202e',
  'U+2028 and U+2029': '\u2028\u2029',
  'control characters': '\u0001\u0008\u0009\u000a\u000b\u000c\u000d\u001b\u001f',
  'U+007F and U+0080': '\u007f\u0080',
  'quotes, backslashes and slashes': '"\'\\/\\u0000\\n',
  'a byte order mark': '\ufeff',
  'noncharacters and the replacement character': '\ufffe\uffff\ufffd',
  'the last code point': '\u{10ffff}',
  'the neighbours of the surrogates': '\ud7ff\ue000',
  'markup and percent signs': '<b>%00&amp;%</b>',
  SQL: "'; DROP TABLE plants; --",
  'a JSON literal': 'null',
  'thousands of emoji': '🌵'.repeat(8_000),
};

const textRows: readonly Scenario[] = [
  ...Object.entries(texts).map(
    ([what, text]): Scenario => ({
      title: `name and tag keep ${what}`,
      ...posts(JSON.stringify({ id: 7, name: text, tag: text })),
      ...succeeds(JSON.stringify({ name: text, tag: text })),
      after: [thenLists(JSON.stringify([{ name: text, tag: text }]))],
    }),
  ),
  {
    title: 'escapes are decoded',
    ...posts('{"id":7,"name":"\\ud83c\\udf35\\u0041\\/\\u000A","tag":"\\u00E9\\u0022"}'),
    ...succeeds('{"name":"🌵A/\\n","tag":"é\\""}'),
    after: [thenLists('[{"name":"🌵A/\\n","tag":"é\\""}]')],
  },
  ...[
    '\\u0000',
    'a\\u0000b',
    '\\ud800',
    '\\udc00',
    '\\udc00\\ud800',
    '\\ud800\\ud800\\udc00',
    'x\\uDFFF',
  ].flatMap((source): Scenario[] => [
    {
      title: `the name "${source}" is rejected`,
      ...posts(`{"id":7,"name":"${source}"}`),
      ...rejected(40000, 'name'),
      after: [thenLacks('7')],
    },
    {
      title: `the tag "${source}" is rejected`,
      ...posts(`{"id":7,"name":"Fern","tag":"${source}"}`),
      ...rejected(40000, 'tag'),
      after: [thenLacks('7')],
    },
  ]),
  {
    title: 'U+0000 and lone surrogates in unknown fields are ignored',
    ...posts('{"id":7,"name":"Fern","x":"\\u0000\\ud800","\\u0000":1}'),
    ...succeeds('{"name":"Fern"}'),
  },
];

const notPlants: Readonly<Record<string, string>> = {
  'an array': '[]',
  'an array with a plant in it': `[${fern}]`,
  null: 'null',
  'a string': '"Fern"',
  'a number': '7',
  'a boolean': 'false',
};

const notJson: Readonly<Record<string, string | Uint8Array>> = {
  'only white space': ' \r\n\t ',
  'a byte order mark before it': `\ufeff${fern}`,
  'a missing end': fern.slice(0, -1),
  'an unterminated string': '{"id":7,"name":"Fern',
  'a trailing comma': '{"id":7,"name":"Fern",}',
  'a comment': '{"id":7,/* a fern */"name":"Fern"}',
  'single quotes': "{'id':7,'name':'Fern'}",
  'names without quotes': '{id:7,name:"Fern"}',
  'a second value after it': `${fern}${fern}`,
  'a raw line feed in a string': '{"id":7,"name":"Fe\nrn"}',
  'a raw U+0000 in a string': '{"id":7,"name":"Fe\u0000rn"}',
  'a bad escape': '{"id":7,"name":"\\x46"}',
  'half an escape': '{"id":7,"name":"\\u00"}',
  'a no-break space between tokens': `{"id":7,\u00a0"name":"Fern"}`,
  'a URL-encoded form': 'id=7&name=Fern',
  'a byte of Latin-1': Buffer.from('{"id":7,"name":"\xe9"}', 'latin1'),
  'half a character of UTF-8': Buffer.from('{"id":7,"name":"\xf0\x9f\x8c"}', 'latin1'),
  'overlong UTF-8': Buffer.from('{"id":7,"name":"\xc0\x80"}', 'latin1'),
  'a surrogate in UTF-8': Buffer.from('{"id":7,"name":"\xed\xa0\x80"}', 'latin1'),
  'UTF-16': Buffer.from(fern, 'utf16le'),
};

const bodies: readonly Scenario[] = [
  ...Object.entries(notPlants).map(
    ([what, body]): Scenario => ({
      title: `a body that is ${what} is rejected`,
      ...posts(body),
      ...rejected(40000, 'body'),
    }),
  ),
  ...Object.entries(notJson).map(
    ([what, body]): Scenario => ({
      title: `a body with ${what} is not JSON`,
      ...posts(body),
      ...rejected(40001, 'body'),
      after: [thenLists('[]')],
    }),
  ),
  { title: 'an empty body is rejected', ...posts(''), ...rejected(40001, 'body') },
  {
    title: 'an empty body in chunks is rejected',
    ...posts('', [...JSON_CONTENT, ['Transfer-Encoding', 'chunked']]),
    ...rejected(40001, 'body'),
  },
  {
    title: 'a missing body is rejected',
    method: 'POST',
    path: '/plants',
    headers: JSON_CONTENT,
    ...rejected(40001, 'body'),
  },
  {
    title: 'white space around a body is allowed',
    ...posts(`\r\n\t ${fern}\n\n`),
    ...succeeds(fernBack),
  },
  {
    title: 'a body in chunks is read',
    ...posts(fern, [...JSON_CONTENT, ['Transfer-Encoding', 'chunked']]),
    ...succeeds(fernBack),
  },
  {
    title: 'a body announced with Expect: 100-continue gets 100 Continue',
    ...posts(fern, [...JSON_CONTENT, ['Expect', '100-continue']]),
    ...succeeds(fernBack),
    interim: [100],
  },
  { title: 'a body nested 64 deep is read', ...posts(nested(64)), ...succeeds('{"name":"Fern"}') },
  ...[65, 3_000, 30_000].map(
    (levels): Scenario => ({
      title: `a body nested ${levels} deep is rejected`,
      ...posts(nested(levels)),
      ...rejected(40001, 'deep'),
    }),
  ),
  {
    title: 'a body nested deep in objects is rejected',
    ...posts(`{"id":7,"name":"Fern","x":${'{"x":'.repeat(4_000)}7${'}'.repeat(4_000)}}`),
    ...rejected(40001, 'deep'),
  },
  {
    title: 'a body nested deep without an end is rejected',
    ...posts('['.repeat(60_000)),
    ...rejected(40001, 'body'),
  },
  {
    title: 'a body of exactly the limit is read',
    ...posts(plantOfSize(BODY_LIMIT).body),
    ...succeeds(plantOfSize(BODY_LIMIT).back),
  },
  {
    title: 'a body of exactly the limit in chunks is read',
    ...posts(plantOfSize(BODY_LIMIT).body, [...JSON_CONTENT, ['Transfer-Encoding', 'chunked']]),
    ...succeeds(plantOfSize(BODY_LIMIT).back),
  },
  {
    title: 'a body one byte over the limit is rejected',
    ...posts(plantOfSize(BODY_LIMIT + 1).body),
    ...rejected(41300),
    after: [thenLists('[]')],
  },
  {
    title: 'a body one byte over the limit in chunks is rejected',
    ...posts(plantOfSize(BODY_LIMIT + 1).body, [...JSON_CONTENT, ['Transfer-Encoding', 'chunked']]),
    ...rejected(41300),
    after: [thenLists('[]')],
  },
  {
    title: 'a Content-Length over the limit is rejected before it is sent',
    ...posts('', [...JSON_CONTENT, ['Content-Length', String(2 ** 40)]]),
    ...rejected(41300),
  },
  {
    title: 'a Content-Length over the limit with Expect: 100-continue gets no 100 Continue',
    ...posts('', [...JSON_CONTENT, ['Expect', '100-continue'], ['Content-Length', '65537']]),
    ...rejected(41300),
  },
  {
    title: 'the limit counts bytes, not characters',
    ...posts(JSON.stringify({ id: 7, name: '🌵'.repeat(17_000) })),
    ...rejected(41300),
  },
];

const badKeys: Readonly<Record<string, string>> = {
  'an empty one': '',
  'one of 256 characters': 'k'.repeat(256),
  'one with a space': 'a b',
  'one with a tab': 'a\tb',
  'one with U+00E9': 'caf\xe9',
  'one with an emoji': Buffer.from('🌵').toString('latin1'),
};

const idempotency: readonly Scenario[] = [
  {
    title: 'the first request with an Idempotency-Key creates, and is not a replay',
    ...posts(fern, withKey('k')),
    ...succeeds(fernBack, { 'idempotent-replayed': null }),
    after: [thenLists(`[${fernBack}]`)],
  },
  {
    title: 'the same key with the same plant gets the first response again and creates nothing',
    before: [{ ...posts(fern, withKey('k')), status: 200 }],
    ...posts(fern, withKey('k')),
    ...succeeds(fernBack, { 'idempotent-replayed': 'true' }),
    after: [thenLists(`[${fernBack}]`)],
  },
  {
    title: 'the same plant in other JSON is the same plant',
    before: [{ ...posts(fern, withKey('k')), status: 200 }],
    ...posts('{ "x":1, "tag":"\\u0050olypodium", "name":"Fern", "id":70e-1 }', withKey('k')),
    ...succeeds(fernBack, { 'idempotent-replayed': 'true' }),
  },
  {
    title: 'a replay creates nothing even after the plant is deleted',
    before: [{ ...posts(fern, withKey('k')), status: 200 }, thenHas('7')],
    ...posts(fern, withKey('k')),
    ...succeeds(fernBack, { 'idempotent-replayed': 'true' }),
    after: [thenLists('[]')],
  },
  {
    title: 'a failed creation stores no key: its retry creates when the id is free',
    given: [{ id: 7n, name: 'Oak' }],
    before: [{ ...posts(fern, withKey('k')), status: 400 }, thenHas('7')],
    ...posts(fern, withKey('k')),
    ...succeeds(fernBack, { 'idempotent-replayed': null }),
    after: [thenLists(`[${fernBack}]`)],
  },
  ...(
    [
      ['another name', '{"id":7,"name":"Oak","tag":"Polypodium"}'],
      ['another tag', '{"id":7,"name":"Fern","tag":"Quercus"}'],
      ['an empty tag', '{"id":7,"name":"Fern","tag":""}'],
      ['no tag', '{"id":7,"name":"Fern"}'],
      ['another id', '{"id":8,"name":"Fern","tag":"Polypodium"}'],
    ] as const
  ).map(
    ([what, body]): Scenario => ({
      title: `the same key with ${what} is rejected`,
      before: [{ ...posts(fern, withKey('k')), status: 200 }],
      ...posts(body, withKey('k')),
      ...rejected(40003, 'Idempotency-Key'),
      answers: { 'idempotent-replayed': null },
      after: [thenLists(`[${fernBack}]`)],
    }),
  ),
  {
    title: 'without a tag first, the same key with an empty tag is rejected',
    before: [{ ...posts('{"id":7,"name":"Fern"}', withKey('k')), status: 200 }],
    ...posts('{"id":7,"name":"Fern","tag":""}', withKey('k')),
    ...rejected(40003, 'Idempotency-Key'),
  },
  {
    title: 'keys of different owners are independent',
    before: [{ ...posts('{"id":7,"name":"Oak"}', withKey('k')), status: 200, by: 'another owner' }],
    ...posts(fern, withKey('k')),
    ...succeeds(fernBack, { 'idempotent-replayed': null }),
  },
  {
    title: 'keys are case-sensitive',
    before: [{ ...posts(fern, withKey('k')), status: 200 }],
    ...posts('{"id":8,"name":"Oak"}', withKey('K')),
    ...succeeds('{"name":"Oak"}', { 'idempotent-replayed': null }),
  },
  {
    title: 'another key does not free a taken id',
    before: [{ ...posts(fern, withKey('k')), status: 200 }],
    ...posts(fern, withKey('l')),
    ...rejected(40002, 'id'),
    answers: { 'idempotent-replayed': null },
  },
  {
    title: 'without the key the same plant again is rejected',
    before: [{ ...posts(fern, withKey('k')), status: 200 }],
    ...posts(fern),
    ...rejected(40002, 'id'),
    answers: { 'idempotent-replayed': null },
  },
  {
    title: 'a request rejected for its fields does not use up its key',
    before: [{ ...posts('{"id":7}', withKey('k')), status: 400 }],
    ...posts(fern, withKey('k')),
    ...succeeds(fernBack, { 'idempotent-replayed': null }),
  },
  ...(
    [
      ['one character', '0'],
      ['255 characters', 'k'.repeat(255)],
      ['the first and the last visible character', '!~'],
      ['quotes, commas and colons', '"a,b:c;d=e\\'],
    ] as const
  ).map(
    ([what, key]): Scenario => ({
      title: `an Idempotency-Key of ${what} is accepted`,
      before: [{ ...posts(fern, withKey(key)), status: 200 }],
      ...posts(fern, withKey(key)),
      ...succeeds(fernBack, { 'idempotent-replayed': 'true' }),
    }),
  ),
  ...Object.entries(badKeys).map(
    ([what, key]): Scenario => ({
      title: `an Idempotency-Key: ${what} is rejected`,
      ...posts(fern, withKey(key)),
      ...rejected(40000, 'Idempotency-Key'),
      after: [thenLists('[]')],
    }),
  ),
  {
    title: 'an Idempotency-Key sent twice is rejected',
    ...posts(fern, [...withKey('k'), ['Idempotency-Key', 'k']]),
    ...rejected(40000, '`Idempotency-Key` must be given once'),
    after: [thenLists('[]')],
  },
  {
    title: 'an Idempotency-Key on other methods is ignored',
    given: [aFern],
    ...deletes('7'),
    headers: [['Idempotency-Key', 'not a key']],
    status: 204,
    answers: { 'idempotent-replayed': null },
  },
];

const nextLink = /^<\/plants\?limit=2&cursor=[A-Za-z0-9._~-]+>; rel="next"$/;

const listing: readonly Scenario[] = [
  {
    title: 'listPlants without plants returns an empty array',
    ...lists(),
    ...succeeds('[]', { link: null }),
  },
  {
    title: 'listPlants without a limit returns all plants in id order',
    given: three,
    ...lists(),
    ...succeeds(threeBack, { link: null, 'content-type': 'application/json' }),
  },
  {
    title: 'ids are ordered as int64',
    given: [
      { id: 2n ** 63n - 1n, name: '6' },
      { id: 10n, name: '4' },
      { id: -(2n ** 63n), name: '0' },
      { id: 9n, name: '3' },
      { id: -10n, name: '1' },
      { id: 2n ** 53n + 1n, name: '5' },
      { id: -9n, name: '2' },
    ],
    ...lists(),
    ...succeeds(JSON.stringify(['0', '1', '2', '3', '4', '5', '6'].map((name) => ({ name })))),
  },
  {
    title: "another owner's plants are not listed",
    given: [aFern, { id: 8n, name: 'Oak', of: 'another owner' }],
    ...lists(),
    ...succeeds(`[${fernBack}]`),
  },
  {
    title: 'limit=0 returns an empty array',
    given: three,
    ...lists('?limit=0'),
    ...succeeds('[]', { link: null }),
  },
  {
    title: 'a list cut by its limit has a link to the next page',
    given: three,
    ...lists('?limit=2'),
    ...succeeds('[{"name":"a"},{"name":"b","tag":""}]', { link: nextLink }),
  },
  {
    title: 'the next page continues after the first, and the last page has no link',
    given: three,
    before: [{ ...lists('?limit=2'), status: 200 }],
    method: 'GET',
    path: '{next}',
    ...succeeds('[{"name":"c"}]', { link: null }),
  },
  {
    title: 'the next page continues after a deleted plant, and includes a created one',
    given: three,
    before: [
      { ...lists('?limit=2'), status: 200 },
      thenHas('2'),
      { ...posts('{"id":9,"name":"d"}'), status: 200 },
      { ...posts('{"id":1,"name":"before the cursor"}'), status: 200 },
    ],
    method: 'GET',
    path: '{next}',
    ...succeeds('[{"name":"c"},{"name":"d"}]', { link: null }),
  },
  {
    title: 'a cursor works without a limit',
    given: [...three, { id: 4n, name: 'd' }],
    before: [{ ...lists('?limit=1'), status: 200 }],
    ...lists('?cursor={cursor}'),
    ...succeeds('[{"name":"b","tag":""},{"name":"c"},{"name":"d"}]', { link: null }),
  },
  {
    title: 'a cursor works with another limit',
    given: [...three, { id: 4n, name: 'd' }],
    before: [{ ...lists('?limit=1'), status: 200 }],
    ...lists('?cursor={cursor}&limit=2'),
    ...succeeds('[{"name":"b","tag":""},{"name":"c"}]', { link: nextLink }),
  },
  {
    title: 'a next page of only deleted plants is an empty array',
    given: three,
    before: [{ ...lists('?limit=2'), status: 200 }, thenHas('3')],
    method: 'GET',
    path: '{next}',
    ...succeeds('[]', { link: null }),
  },
  {
    title: 'a page that ends with the highest id has no link',
    given: [
      { id: 2n ** 63n - 2n, name: 'a' },
      { id: 2n ** 63n - 1n, name: 'b' },
    ],
    ...lists('?limit=2'),
    ...succeeds('[{"name":"a"},{"name":"b"}]', { link: null }),
  },
  ...['3', '4', '2147483647', '%33'].map(
    (limit): Scenario => ({
      title: `limit=${limit} does not cut a list of three`,
      given: three,
      ...lists(`?limit=${limit}`),
      ...succeeds(threeBack, { link: null }),
    }),
  ),
  ...[
    '',
    '-1',
    '1.5',
    '1.0',
    '1e1',
    '+1',
    '%201',
    '1%20',
    '1,2',
    '0x1',
    'abc',
    'NaN',
    'null',
    'true',
    '%D9%A1',
    '1%00',
    '2147483648',
    '4294967297',
    '9223372036854775808',
    '9'.repeat(400),
  ].map(
    (limit): Scenario => ({
      title: `limit=${brief(limit)} is rejected`,
      given: three,
      ...lists(`?limit=${limit}`),
      ...rejected(40000, 'limit'),
    }),
  ),
  {
    title: 'a limit without a value is rejected',
    ...lists('?limit'),
    ...rejected(40000, 'limit'),
  },
  {
    title: 'a limit given twice is rejected',
    ...lists('?limit=1&limit=1'),
    ...rejected(40000, '`limit` is given more than once'),
  },
  {
    title: 'a limit given twice, once percent-encoded, is rejected',
    ...lists('?limit=1&l%69mit=2'),
    ...rejected(40000, '`limit` is given more than once'),
  },
  ...['', 'x', '0', '7', 'AAAAAAAAAAAAAAAA', 'AAAAAAAAAAcAAAAA', '%00', 'null', 'A'.repeat(4_000)].map(
    (cursor): Scenario => ({
      title: `cursor=${brief(cursor)} is rejected`,
      given: three,
      ...lists(`?limit=2&cursor=${cursor}`),
      ...rejected(40000, 'cursor'),
    }),
  ),
  {
    title: 'a cursor with an extra character is rejected',
    given: three,
    before: [{ ...lists('?limit=2'), status: 200 }],
    method: 'GET',
    path: '{next}A',
    ...rejected(40000, 'cursor'),
  },
  {
    title: 'a cursor given twice is rejected',
    given: three,
    before: [{ ...lists('?limit=2'), status: 200 }],
    method: 'GET',
    path: '{next}&cursor=x',
    ...rejected(40000, '`cursor` is given more than once'),
  },
  {
    title: 'other query parameters are ignored, and names are case-sensitive',
    given: three,
    ...lists('?Limit=1&page=2&__proto__=1&constructor&&=&limits=0'),
    ...succeeds(threeBack, { link: null }),
  },
  { title: 'an empty query is ignored', given: three, ...lists('?'), ...succeeds(threeBack) },
  {
    title: 'a second question mark belongs to the query',
    ...lists('?limit=1?'),
    ...rejected(40000, 'limit'),
  },
  {
    title: 'HEAD of a list reads no plants: no body, no Link and no Content-Length',
    given: three,
    method: 'HEAD',
    path: '/plants?limit=2',
    status: 200,
    answer: '',
    answers: { link: null, 'content-type': 'application/json', 'content-length': null },
  },
  {
    title: 'HEAD with an invalid limit is rejected like GET, without the body',
    method: 'HEAD',
    path: '/plants?limit=x',
    ...rejected(40000, 'limit'),
  },
  {
    title: 'a body of a GET is ignored',
    given: three,
    ...lists(),
    headers: JSON_CONTENT,
    body: '{"limit":1',
    ...succeeds(threeBack),
  },
  {
    title: 'a body of a GET that is not JSON content is rejected',
    ...lists(),
    headers: [['Content-Type', 'text/plain']],
    body: 'limit=1',
    ...rejected(41500, 'Content-Type'),
  },
  {
    title: 'a body of a GET that is too large is rejected',
    ...lists(),
    headers: JSON_CONTENT,
    body: plantOfSize(BODY_LIMIT + 1).body,
    ...rejected(41300),
  },
  {
    title: 'a Content-Type without a body is ignored',
    given: three,
    ...lists(),
    headers: [['Content-Type', 'text/plain']],
    ...succeeds(threeBack),
  },
];

/** Path segments with the ids that they represent. */
const pathIds: readonly (readonly [segment: string, id: bigint])[] = [
  ['7', 7n],
  ['-7', -7n],
  ['0', 0n],
  ['-0', 0n],
  ['%37', 7n],
  ['%2d7', -7n],
  ['9007199254740992', 9007199254740992n],
  ['9007199254740993', 9007199254740993n],
  ['9223372036854775807', 9223372036854775807n],
  ['-9223372036854775808', -9223372036854775808n],
  ['7?x=8', 7n],
];

const notPathIds: readonly string[] = [
  'abc',
  '+1',
  '%2B1',
  '01',
  '-01',
  '00',
  '--1',
  '-',
  '1.0',
  '1e0',
  '0x1',
  '1,2',
  '1;2',
  '*',
  'null',
  '%20',
  '%201',
  '1%20',
  '1%0A',
  '1%00',
  '1%2F2',
  '%25',
  '%D9%A1',
  '%EF%BC%91',
  '%227%22',
  '9223372036854775808',
  '-9223372036854775809',
  '18446744073709551623',
  '7'.repeat(8_000),
];

const deletion: readonly Scenario[] = [
  {
    title: 'deletePlant answers 204 without body and Content-Length',
    given: [aFern, { id: 8n, name: 'Oak' }],
    ...deletes('7'),
    status: 204,
    answer: '',
    answers: { 'content-length': null, 'transfer-encoding': null, 'content-type': null },
    after: [thenLists('[{"name":"Oak"}]'), thenLacks('7')],
  },
  ...pathIds.map(
    ([segment, id]): Scenario => ({
      title: `the path id ${segment} is ${id}, and neither of its neighbours`,
      given: [{ id, name: 'Fern' }, ...neighboursOf(id)],
      ...deletes(segment),
      status: 204,
      answer: '',
      after: [thenLists(JSON.stringify(neighboursOf(id).map(({ name }) => ({ name }))))],
    }),
  ),
  ...notPathIds.map(
    (segment): Scenario => ({
      title: `the path id ${brief(segment)} is rejected`,
      given: [{ id: 1n, name: 'Fern' }],
      ...deletes(segment),
      ...rejected(40000, 'id'),
      after: [thenHas('1')],
    }),
  ),
  { title: 'deletePlant of an absent plant → 404', ...deletes('7'), ...rejected(40400, '7') },
  {
    title: 'deletePlant of a deleted plant → 404',
    given: [aFern],
    before: [thenHas('7')],
    ...deletes('7'),
    ...rejected(40400, '7'),
    sameAs: 'deletePlant of an absent plant → 404',
  },
  {
    title: "another owner's plant is 404 like one that is not there, and stays",
    given: [{ ...aFern, of: 'another owner' }],
    ...deletes('7'),
    ...rejected(40400, '7'),
    sameAs: 'deletePlant of an absent plant → 404',
    after: [{ ...thenLists(`[${fernBack}]`), by: 'another owner' }],
  },
  {
    title: 'a DELETE with a JSON Content-Type and no body succeeds',
    given: [aFern],
    ...deletes('7'),
    headers: JSON_CONTENT,
    status: 204,
  },
  {
    title: 'a body of a DELETE is ignored',
    given: [aFern],
    ...deletes('7'),
    headers: JSON_CONTENT,
    body: '{"id":8',
    status: 204,
    after: [thenLists('[]')],
  },
  {
    title: 'a body of a DELETE that is not JSON content is rejected',
    given: [aFern],
    ...deletes('7'),
    headers: [['Content-Type', 'text/plain']],
    body: '7',
    ...rejected(41500, 'Content-Type'),
    after: [thenHas('7')],
  },
];

const routes: readonly Scenario[] = [
  ...[
    '/',
    '/plant',
    '/Plants',
    '/plants/',
    '/plants//',
    '/plants/?limit=1',
    '/plants/1/',
    '/plants/1/2',
    '/plants.json',
    '/plants%2F',
    '/plants;x',
    '//plants',
    '/./plants',
    '/plants/../plants',
    '/v1/plants',
    '/openapi',
    '/openapi.yaml',
    '/openapi.json/',
    '/docs/',
    '/docs/nothing',
    '/swagger',
    '/favicon.ico',
    '/live',
    '/ready',
    '/metrics',
    '/constructor',
    '/__proto__',
  ].map(
    (path): Scenario => ({
      title: `no route at ${path}`,
      method: 'GET',
      path,
      authorization: [],
      ...rejected(40401),
    }),
  ),
  ...['/plants/', '/plants%2F7', '/nothing'].flatMap((path): Scenario[] =>
    ['DELETE', 'POST', 'OPTIONS', 'PATCH'].map((method) => ({
      title: `no route at ${path} for ${method}`,
      method,
      path,
      ...rejected(40401),
    })),
  ),
  {
    title: 'OPTIONS of * concerns the server',
    method: 'OPTIONS',
    path: '*',
    status: 204,
    allows: ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'POST'],
  },
  {
    title: 'OPTIONS of a URL without path concerns the server',
    method: 'OPTIONS',
    path: 'http://plants.test',
    status: 204,
    allows: ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'POST'],
  },
  {
    title: 'an unknown path answers HEAD without a body',
    method: 'HEAD',
    path: '/nothing',
    ...rejected(40401),
  },
  {
    title: 'a path may be percent-encoded where it need not',
    given: three,
    method: 'GET',
    path: '/%70l%61nts',
    ...succeeds(threeBack),
  },
  ...['PUT', 'PATCH', 'DELETE', 'TRACE', 'PROPFIND', 'QUERY'].map(
    (method): Scenario => ({
      title: `${method} is not allowed on the collection`,
      method,
      path: '/plants',
      authorization: [],
      ...rejected(40500, method),
      allows: COLLECTION,
    }),
  ),
  ...['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'TRACE'].map(
    (method): Scenario => ({
      title: `${method} is not allowed on a plant`,
      given: [aFern],
      method,
      path: '/plants/7',
      authorization: [],
      ...rejected(40500, method),
      allows: ITEM,
    }),
  ),
  ...['POST', 'DELETE'].map(
    (method): Scenario => ({
      title: `${method} is not allowed on the OpenAPI document`,
      method,
      path: '/openapi.json',
      authorization: [],
      ...rejected(40500, method),
      allows: PAGE_ONLY,
    }),
  ),
  ...(
    [
      ['/plants', COLLECTION],
      ['/plants/7', ITEM],
      ['/plants/not-an-id', ITEM],
      ['/openapi.json', PAGE_ONLY],
      ['/docs', PAGE_ONLY],
      ['/docs/scalar.js', PAGE_ONLY],
    ] as const
  ).map(
    ([path, allows]): Scenario => ({
      title: `OPTIONS ${path} answers 204 with Allow, to anybody`,
      method: 'OPTIONS',
      path,
      authorization: [],
      status: 204,
      answer: '',
      allows,
      answers: { 'content-length': null },
    }),
  ),
  {
    title: 'the OpenAPI document is public',
    method: 'GET',
    path: '/openapi.json',
    authorization: [],
    status: 200,
    answer: /^\{"openapi":"3\.1\.[0-9]+",.*\}$/s,
    answers: { 'content-type': 'application/json' },
  },
  {
    title: 'the OpenAPI document answers HEAD without the body',
    method: 'HEAD',
    path: '/openapi.json',
    authorization: [],
    status: 200,
    answer: '',
    answers: { 'content-type': 'application/json', 'content-length': /^[1-9][0-9]{3,}$/ },
  },
  {
    title: 'the API reference is public',
    method: 'GET',
    path: '/docs',
    authorization: [],
    status: 200,
    answer: /^<!doctype html>.*<script src="docs\/scalar\.js">/s,
    answers: { 'content-type': 'text/html; charset=utf-8' },
  },
  {
    title: 'the script of the API reference answers HEAD without the body',
    method: 'HEAD',
    path: '/docs/scalar.js',
    authorization: [],
    status: 200,
    answer: '',
    answers: { 'content-type': 'text/javascript; charset=utf-8', 'content-length': /^[1-9][0-9]{6}$/ },
  },
  ...['/docs', '/docs/scalar.js'].flatMap((path): readonly Scenario[] => [
    {
      title: `${path} of another version than \`If-Match\` names is 41200`,
      method: 'GET',
      path,
      authorization: [],
      headers: [['If-Match', '"another"']],
      ...rejected(41200, 'If-Match'),
      answers: { etag: null },
    },
    {
      title: `${path} with \`If-None-Match: *\` is not sent`,
      method: 'GET',
      path,
      authorization: [],
      headers: [['If-None-Match', '*']],
      status: 304,
      answer: '',
      answers: { etag: /^"[\w-]{43}"$/, 'content-length': null },
    },
    {
      title: `${path} with \`If-Match: *\` is sent`,
      method: 'HEAD',
      path,
      authorization: [],
      headers: [['If-Match', '*']],
      status: 200,
      answers: { etag: /^"[\w-]{43}"$/ },
    },
  ]),
];

const underPrefix: readonly Scenario[] = [
  {
    title: 'under a base path a plant is created',
    basePath: '/v1',
    ...posts(fern),
    path: '/v1/plants',
    ...succeeds(fernBack),
  },
  {
    title: 'under a base path plants are listed, with links that have it',
    basePath: '/v1',
    given: three,
    method: 'GET',
    path: '/v1/plants?limit=2',
    ...succeeds('[{"name":"a"},{"name":"b","tag":""}]', {
      link: /^<\/v1\/plants\?limit=2&cursor=[^>]+>; rel="next"$/,
    }),
  },
  {
    title: 'under a base path the link to the next page works',
    basePath: '/v1',
    given: three,
    before: [{ method: 'GET', path: '/v1/plants?limit=2', status: 200 }],
    method: 'GET',
    path: '{next}',
    ...succeeds('[{"name":"c"}]', { link: null }),
  },
  {
    title: 'under a base path a plant is deleted',
    basePath: '/v1',
    given: [aFern],
    method: 'DELETE',
    path: '/v1/plants/7',
    status: 204,
  },
  {
    title: 'under a base path the OpenAPI document is served',
    basePath: '/v1',
    method: 'GET',
    path: '/v1/openapi.json',
    authorization: [],
    status: 200,
    answer: /"servers":\[\{"url":"\/v1"\}\]/,
  },
  ...[
    '/',
    '/v1',
    '/v1/',
    '/plants',
    '/plants/7',
    '/openapi.json',
    '/docs',
    '/v1/plants/',
    '/v1plants',
    '/v1/v1/plants',
    '/V1/plants',
  ].map(
    (path): Scenario => ({
      title: `under the base path /v1 no route at ${path}`,
      basePath: '/v1',
      method: 'GET',
      path,
      ...rejected(40401),
    }),
  ),
  {
    title: 'under a base path other methods are not allowed',
    basePath: '/v1',
    method: 'PUT',
    path: '/v1/plants/7',
    ...rejected(40500, 'PUT'),
    allows: ITEM,
  },
  {
    title: 'under a base path OPTIONS answers with Allow',
    basePath: '/v1',
    method: 'OPTIONS',
    path: '/v1/plants',
    status: 204,
    answer: '',
    allows: COLLECTION,
  },
  {
    title: 'under a base path a token is needed',
    basePath: '/v1',
    method: 'GET',
    path: '/v1/plants',
    authorization: [],
    ...rejected(40100, 'Authorization'),
    answers: { 'www-authenticate': 'Bearer realm="plant-store"' },
  },
];

const noCredentials = {
  ...rejected(40100, 'Authorization'),
  answers: { 'www-authenticate': 'Bearer realm="plant-store"' },
};

const UNKNOWN_TOKEN = 'an unknown token is rejected';

const invalidToken = {
  ...rejected(40101, 'token'),
  answers: { 'www-authenticate': 'Bearer realm="plant-store", error="invalid_token"' },
  sameAs: UNKNOWN_TOKEN,
};

function tooNarrow(scope: string) {
  return {
    ...rejected(40300, scope),
    answers: {
      'www-authenticate': `Bearer realm="plant-store", error="insufficient_scope", scope="${scope}"`,
    },
  };
}

const callers: readonly Scenario[] = [
  { title: 'a request without a token is rejected', ...lists(), authorization: [], ...noCredentials },
  {
    title: 'a creation without a token is rejected',
    ...posts(fern),
    authorization: [],
    ...noCredentials,
    after: [thenLists('[]')],
  },
  {
    title: 'a deletion without a token is rejected',
    given: [aFern],
    ...deletes('7'),
    authorization: [],
    ...noCredentials,
    after: [thenHas('7')],
  },
  {
    title: 'HEAD without a token is rejected without a body',
    method: 'HEAD',
    path: '/plants',
    authorization: [],
    ...noCredentials,
  },
  {
    title: 'without a token, Expect: 100-continue gets no 100 Continue',
    ...posts(fern, [...JSON_CONTENT, ['Expect', '100-continue']]),
    authorization: [],
    ...noCredentials,
  },
  ...[
    '',
    'Basic cGxhbnQ6c3RvcmU=',
    'Digest x',
    'Token {token}',
    '{token}',
    'Bearer{token}',
    'Bearers {token}',
    'Basic {token}',
  ].map(
    (value): Scenario => ({
      title: `Authorization: ${value === '' ? 'nothing' : value} has no bearer credentials`,
      ...lists(),
      authorization: [value],
      ...noCredentials,
    }),
  ),
  {
    title: '?access_token= is not a credential',
    method: 'GET',
    path: '/plants?access_token={token}',
    authorization: [],
    ...noCredentials,
  },
  {
    title: 'no other header authenticates a caller',
    ...lists(),
    headers: [
      ['Proxy-Authorization', 'Bearer {token}'],
      ['X-Authorization', 'Bearer {token}'],
      ['Cookie', 'access_token={token}'],
    ],
    authorization: [],
    ...noCredentials,
  },
  ...[
    'Bearer {token}',
    'bearer {token}',
    'BEARER {token}',
    'bEaReR {token}',
    'Bearer  {token}',
    'Bearer {token} ',
  ].map(
    (value): Scenario => ({
      title: `Authorization: ${JSON.stringify(value)} is good`,
      given: three,
      ...lists(),
      authorization: [value],
      ...succeeds(threeBack),
    }),
  ),
  {
    title: UNKNOWN_TOKEN,
    ...lists(),
    token: 'unknown',
    ...rejected(40101, 'token'),
    answers: invalidToken.answers,
  },
  { title: 'a token with a wrong checksum is rejected', ...lists(), token: 'mistyped', ...invalidToken },
  { title: 'an expired token is rejected', ...lists(), token: 'expired', ...invalidToken },
  { title: 'a revoked token is rejected', ...lists(), token: 'revoked', ...invalidToken },
  ...[
    'Bearer',
    'Bearer x',
    'Bearer null',
    'Bearer {token}x',
    'Bearer x{token}',
    'Bearer "{token}"',
    'Bearer {token} {token}',
    'Bearer {token}, Bearer {token}',
    'Bearer {token};',
    'Bearer caf\xe9',
    `Bearer plt_${'0'.repeat(49)}`,
    `Bearer plt_${'a'.repeat(8_000)}`,
  ].map(
    (value): Scenario => ({
      title: `Authorization: ${brief(value)} is an invalid token`,
      ...lists(),
      authorization: [value],
      ...invalidToken,
    }),
  ),
  {
    title: 'an expired token cannot create',
    ...posts(fern),
    token: 'expired',
    ...invalidToken,
    after: [thenLists('[]')],
  },
  {
    title: 'a revoked token cannot delete',
    given: [aFern],
    ...deletes('7'),
    token: 'revoked',
    ...invalidToken,
    after: [thenHas('7')],
  },
  { title: 'plants:read lists', given: three, ...lists(), token: 'reader', ...succeeds(threeBack) },
  {
    title: 'plants:read does not create',
    ...posts(fern),
    token: 'reader',
    ...tooNarrow('plants:write'),
    after: [thenLists('[]')],
  },
  {
    title: 'plants:read does not delete',
    given: [aFern],
    ...deletes('7'),
    token: 'reader',
    ...tooNarrow('plants:write'),
    after: [thenHas('7')],
  },
  { title: 'plants:write creates', ...posts(fern), token: 'writer', ...succeeds(fernBack) },
  { title: 'plants:write deletes', given: [aFern], ...deletes('7'), token: 'writer', status: 204 },
  { title: 'plants:write does not list', ...lists(), token: 'writer', ...tooNarrow('plants:read') },
  {
    title: 'plants:write does not get the headers of a list either',
    method: 'HEAD',
    path: '/plants',
    token: 'writer',
    ...tooNarrow('plants:read'),
  },
  {
    title: 'two Authorization headers are rejected',
    ...lists(),
    authorization: ['Bearer {token}', 'Basic cGxhbnQ6c3RvcmU='],
    ...rejected(40000, 'Authorization'),
  },
  {
    title: 'two Authorization headers are rejected even if they are the same',
    ...lists(),
    authorization: ['Bearer {token}', 'Bearer {token}'],
    ...rejected(40000, 'Authorization'),
  },
];

const content: readonly Scenario[] = [
  ...[
    'application/json',
    'application/json; charset=utf-8',
    'application/json;charset="UTF-8"',
    'Application/JSON',
    'APPLICATION/JSON ; Charset=UTF-8',
    'application/json; ;\tcharset=utf-8; ',
    'application/json; x="a, \\" b;"; y=1',
  ].map(
    (type): Scenario => ({
      title: `Content-Type: ${type} is JSON`,
      ...posts(fern, [['Content-Type', type]]),
      ...succeeds(fernBack),
    }),
  ),
  ...[
    '',
    'text/plain',
    'text/json',
    'json',
    'application/jsonp',
    'application/json5',
    'application/problem+json',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/json, text/plain',
    'application/json;x, text/plain',
    'application/json; x=1, text/plain',
    'application/json; x="a", text/plain',
    'application/json; x="a',
    'application/json; x="a\\"',
    'application/json; x',
    'application/json; =1',
    `application/json${'; '.repeat(1_000)},`,
    'text/plain; application/json',
    '*/*',
  ].map(
    (type): Scenario => ({
      title: `Content-Type: ${type === '' ? 'nothing' : brief(type)} is not JSON`,
      ...posts(fern, [['Content-Type', type]]),
      ...rejected(41500, 'Content-Type'),
      after: [thenLists('[]')],
    }),
  ),
  {
    title: 'a body without a Content-Type is rejected',
    ...posts(fern, []),
    ...rejected(41500, 'Content-Type'),
  },
  {
    title: 'a body in chunks without a Content-Type is rejected',
    ...posts(fern, [['Transfer-Encoding', 'chunked']]),
    ...rejected(41500, 'Content-Type'),
  },
  ...['identity', 'Identity', 'IDENTITY'].map(
    (coding): Scenario => ({
      title: `Content-Encoding: ${coding} is none`,
      ...posts(fern, [...JSON_CONTENT, ['Content-Encoding', coding]]),
      ...succeeds(fernBack),
    }),
  ),
  ...['gzip', 'br', 'deflate', 'zstd', 'x-gzip', 'identity, gzip', 'gzip, identity'].map(
    (coding): Scenario => ({
      title: `Content-Encoding: ${coding} is rejected`,
      ...posts(fern, [...JSON_CONTENT, ['Content-Encoding', coding]]),
      ...rejected(41500, 'Content-Encoding'),
      after: [thenLists('[]')],
    }),
  ),
];

const tooLarge = plantOfSize(BODY_LIMIT + 1).body;

const order: readonly Scenario[] = [
  {
    title: 'malformed HTTP comes before a missing route',
    method: 'GET',
    path: '/nothing',
    raw: 'GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n',
    ...rejected(40004, 'Host'),
  },
  {
    title: 'a missing route comes before the method',
    method: 'PATCH',
    path: '/nothing',
    ...rejected(40401),
  },
  {
    title: 'a missing route comes before the token',
    method: 'GET',
    path: '/nothing',
    token: 'unknown',
    ...rejected(40401),
  },
  {
    title: 'the method comes before the token',
    method: 'PUT',
    path: '/plants',
    token: 'unknown',
    ...rejected(40500, 'PUT'),
    allows: COLLECTION,
  },
  {
    title: 'the method comes before an id in the path',
    method: 'PUT',
    path: '/plants/not-an-id',
    ...rejected(40500, 'PUT'),
    allows: ITEM,
  },
  ...(
    [
      ['text', 'text/plain', 'fern'],
      ['a body that is too large', 'application/json', tooLarge],
      ['a body that is not JSON', 'application/json', '{'],
    ] as const
  ).flatMap(([what, type, body]): Scenario[] => [
    {
      title: `a missing route comes before ${what}`,
      method: 'POST',
      path: '/nothing',
      headers: [['Content-Type', type]],
      body,
      ...rejected(40401),
    },
    {
      title: `the method comes before ${what}`,
      method: 'PUT',
      path: '/plants',
      headers: [['Content-Type', type]],
      body,
      ...rejected(40500, 'PUT'),
      allows: COLLECTION,
    },
    {
      title: `the method comes before ${what} in chunks`,
      method: 'POST',
      path: '/plants/7',
      headers: [
        ['Content-Type', type],
        ['Transfer-Encoding', 'chunked'],
      ],
      body,
      ...rejected(40500, 'POST'),
      allows: ITEM,
    },
  ]),
  ...(
    [
      ['a missing route', { method: 'POST', path: '/nothing', ...rejected(40401) }],
      ['the method', { method: 'PUT', path: '/plants', ...rejected(40500, 'PUT'), allows: COLLECTION }],
      ['an invalid token', { method: 'POST', path: '/plants', token: 'unknown', ...rejected(40101) }],
      ['a missing scope', { method: 'POST', path: '/plants', token: 'reader', ...rejected(40300) }],
    ] as const
  ).map(
    ([what, request]): Scenario => ({
      title: `${what} comes before an expectation`,
      headers: [...JSON_CONTENT, ['Expect', 'a-miracle']],
      body: fern,
      ...request,
    }),
  ),
  ...(
    [
      ['a text body', 'text/plain', fern],
      ['a body that is too large', 'application/json', tooLarge],
    ] as const
  ).map(
    ([what, type, body]): Scenario => ({
      title: `an expectation comes before ${what}`,
      ...posts(body, [
        ['Content-Type', type],
        ['Expect', 'a-miracle'],
      ]),
      ...rejected(41700, '100-continue'),
    }),
  ),
  {
    title: 'the type of a body comes before its size',
    ...posts(tooLarge, [['Content-Type', 'text/plain']]),
    ...rejected(41500),
  },
  ...(
    [
      ['a missing route comes before', { path: '/nothing', ...rejected(40401) }],
      ['the method comes before', { path: '/plants/7', ...rejected(40500, 'GET'), allows: ITEM }],
      ['a public page ignores', { path: '/openapi.json', status: 200 }],
    ] as const
  ).map(
    ([what, request]): Scenario => ({
      title: `${what} two Authorization headers`,
      method: 'GET',
      authorization: ['Bearer {token}', 'Bearer {token}'],
      ...request,
    }),
  ),
  {
    title: 'OPTIONS with a text body is rejected',
    method: 'OPTIONS',
    path: '/plants',
    headers: [['Content-Type', 'text/plain']],
    body: 'fern',
    ...rejected(41500),
  },
  {
    title: 'OPTIONS with a body over the limit is rejected',
    method: 'OPTIONS',
    path: '/plants',
    headers: [['Content-Type', 'application/json']],
    body: tooLarge,
    ...rejected(41300),
  },
  {
    title: 'OPTIONS ignores a body that is not valid JSON',
    method: 'OPTIONS',
    path: '/plants',
    headers: [['Content-Type', 'application/json']],
    body: '{',
    status: 204,
    allows: COLLECTION,
  },
  {
    title: 'an If-Match with an entity tag does not match, and nothing is deleted',
    given: [aFern],
    ...deletes('7'),
    headers: [['If-Match', '"x"']],
    ...rejected(41200),
    after: [thenHas('7')],
  },
  {
    title: 'an If-None-Match of any plant does not match, and nothing is deleted',
    given: [aFern],
    ...deletes('7'),
    headers: [['If-None-Match', '*']],
    ...rejected(41200, 'If-None-Match'),
    after: [thenHas('7')],
  },
  ...[
    ['an unknown method', 'PLANT'],
    ['a method in lower case', 'get'],
  ].map(
    ([title = '', method = '']): Scenario => ({
      title: `${title} is not implemented`,
      method,
      path: '/plants',
      raw: `${method} /plants HTTP/1.1\r\n${good}\r\n`,
      ...rejected(50100),
    }),
  ),
  {
    title: 'two Content-Types are rejected',
    method: 'POST',
    path: '/plants',
    headers: [
      ['Content-Type', 'application/json'],
      ['Content-Type', 'text/plain'],
    ],
    body: '{"id":1,"name":"Fern"}',
    ...rejected(41500),
  },
  {
    title: 'an empty body in chunks counts as no body',
    method: 'GET',
    path: '/plants',
    headers: [['Transfer-Encoding', 'chunked']],
    body: '',
    ...succeeds('[]'),
  },
  {
    title: 'a missing token comes before the scope and the content',
    ...posts(tooLarge, [['Content-Type', 'text/plain']]),
    authorization: [],
    ...noCredentials,
  },
  {
    title: 'an invalid token comes before the content',
    ...posts(fern, [['Content-Type', 'text/plain']]),
    token: 'revoked',
    ...invalidToken,
  },
  {
    title: 'an invalid token comes before an id in the path',
    ...deletes('not-an-id'),
    token: 'expired',
    ...invalidToken,
  },
  {
    title: 'an invalid token comes before a limit',
    ...lists('?limit=x'),
    token: 'mistyped',
    ...invalidToken,
  },
  {
    title: 'the scope comes before the content type',
    ...posts(fern, [['Content-Type', 'text/plain']]),
    token: 'reader',
    ...tooNarrow('plants:write'),
  },
  {
    title: 'the scope comes before the size of the body',
    ...posts(tooLarge),
    token: 'reader',
    ...tooNarrow('plants:write'),
  },
  {
    title: 'the scope comes before an id in the path',
    ...deletes('not-an-id'),
    token: 'reader',
    ...tooNarrow('plants:write'),
  },
  {
    title: 'the scope comes before a limit',
    ...lists('?limit=x'),
    token: 'writer',
    ...tooNarrow('plants:read'),
  },
  {
    title: 'the content type comes before the size of the body',
    ...posts(tooLarge, [['Content-Type', 'text/plain']]),
    ...rejected(41500, 'Content-Type'),
  },
  {
    title: 'the content encoding comes before the size of the body',
    ...posts(tooLarge, [...JSON_CONTENT, ['Content-Encoding', 'gzip']]),
    ...rejected(41500, 'Content-Encoding'),
  },
  {
    title: 'the content type comes before the fields',
    ...posts('{}', [['Content-Type', 'text/plain']]),
    ...rejected(41500, 'Content-Type'),
  },
  {
    title: 'the size of the body comes before its syntax',
    ...posts(`${tooLarge}}`),
    ...rejected(41300),
  },
  {
    title: 'the size of the body comes before the Idempotency-Key',
    ...posts(tooLarge, withKey('')),
    ...rejected(41300),
  },
  {
    title: 'the size of a body in chunks comes before the Idempotency-Key',
    ...posts(tooLarge, [...withKey(''), ['Transfer-Encoding', 'chunked']]),
    ...rejected(41300),
  },
  {
    title: 'the size of the body comes before a limit',
    ...lists('?limit=x'),
    headers: JSON_CONTENT,
    body: tooLarge,
    ...rejected(41300),
  },
];

const json = `${good}Content-Type: application/json\r\n`;

/** Messages that are not valid HTTP/1.1, each with a description. */
const messages: readonly (readonly [title: string, method: string, path: string, raw: string])[] = [
  [
    'a request without Host',
    'GET',
    '/plants',
    'GET /plants HTTP/1.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n',
  ],
  ['a request with two Hosts', 'GET', '/plants', `GET /plants HTTP/1.1\r\nHost: plants.test\r\n${good}\r\n`],
  [
    'an invalid Host',
    'GET',
    '/plants',
    'GET /plants HTTP/1.1\r\nHost: plants.test/ x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n',
  ],
  ['a request line without a version', 'GET', '/plants', 'GET /plants\r\n\r\n'],
  ['a request line of one word', 'GET', '', 'GET\r\n\r\n'],
  ['a request line without a target', 'GET', '', `GET  HTTP/1.1\r\n${good}\r\n`],
  ['a target without a slash', 'GET', 'plants', `GET plants HTTP/1.1\r\n${good}\r\n`],
  ['a space in the target', 'GET', '/plants ?limit=1', `GET /plants ?limit=1 HTTP/1.1\r\n${good}\r\n`],
  ['a fragment in the target', 'GET', '/plants#x', `GET /plants#x HTTP/1.1\r\n${good}\r\n`],
  [
    'a raw byte above 0x7F in the target',
    'DELETE',
    '/plants/\xe9',
    `DELETE /plants/\xe9 HTTP/1.1\r\n${good}\r\n`,
  ],
  ['a control character in the target', 'GET', '/plants\x01', `GET /plants\x01 HTTP/1.1\r\n${good}\r\n`],
  ['HTTP/2.0 in the request line', 'GET', '/plants', `GET /plants HTTP/2.0\r\n${good}\r\n`],
  ['HTTP/1.9 in the request line', 'GET', '/plants', `GET /plants HTTP/1.9\r\n${good}\r\n`],
  ['another protocol in the request line', 'GET', '/plants', `GET /plants ICE/1.1\r\n${good}\r\n`],
  ['what a TLS client sends', 'GET', '', '\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03'],
  ['a header without a colon', 'GET', '/plants', `GET /plants HTTP/1.1\r\n${good}Fern\r\n\r\n`],
  ['a header without a name', 'GET', '/plants', `GET /plants HTTP/1.1\r\n${good}: Fern\r\n\r\n`],
  ['a space before a colon', 'GET', '/plants', `GET /plants HTTP/1.1\r\n${good}X-Fern : x\r\n\r\n`],
  ['a header that is folded', 'GET', '/plants', `GET /plants HTTP/1.1\r\n${good}X-Fern: a\r\n b\r\n\r\n`],
  ['U+0000 in a header', 'GET', '/plants', `GET /plants HTTP/1.1\r\n${good}X-Fern: a\x00b\r\n\r\n`],
  ['bare line feeds', 'GET', '/plants', 'GET /plants HTTP/1.1\nHost: plants.test\n\n'],
  [
    'two different Content-Lengths',
    'POST',
    '/plants',
    `POST /plants HTTP/1.1\r\n${json}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} `,
  ],
  [
    'a negative Content-Length',
    'POST',
    '/plants',
    `POST /plants HTTP/1.1\r\n${json}Content-Length: -2\r\n\r\n{}`,
  ],
  [
    'an invalid Content-Length',
    'POST',
    '/plants',
    `POST /plants HTTP/1.1\r\n${json}Content-Length: 2x\r\n\r\n{}`,
  ],
  [
    'Content-Length and Transfer-Encoding',
    'POST',
    '/plants',
    `POST /plants HTTP/1.1\r\n${json}Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
  ],
  [
    'a Transfer-Encoding that does not end in chunked',
    'POST',
    '/plants',
    `POST /plants HTTP/1.1\r\n${json}Transfer-Encoding: chunked, gzip\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
  ],
  [
    'a Transfer-Encoding other than chunked',
    'POST',
    '/plants',
    `POST /plants HTTP/1.1\r\n${json}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
  ],
  [
    'a chunk without a size',
    'POST',
    '/plants',
    `POST /plants HTTP/1.1\r\n${json}Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n`,
  ],
  [
    'a chunk longer than its size',
    'POST',
    '/plants',
    `POST /plants HTTP/1.1\r\n${json}Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n`,
  ],
];

const malformed: readonly Scenario[] = [
  ...messages.map(
    ([title, method, path, raw]): Scenario => ({
      title: `${title} is malformed HTTP`,
      method,
      path,
      raw,
      ...rejected(40004),
    }),
  ),
  ...['/plants/%', '/plants/%zz', '/plants/%FF', '/plants/%C0%80', '/nothing/%4'].map(
    (path): Scenario => ({
      title: `the bad percent-encoding of ${path} is malformed HTTP`,
      method: 'DELETE',
      path,
      ...rejected(40004, 'path'),
    }),
  ),
  {
    title: 'a body shorter than its Content-Length is malformed HTTP',
    method: 'POST',
    path: '/plants',
    raw: `POST /plants HTTP/1.1\r\n${json}Content-Length: 99\r\n\r\n${fern}`,
    endsEarly: true,
    ...rejected(40004),
    after: [thenLists('[]')],
  },
  ...['Connection', 'Proxy-Connection'].map(
    (name): Scenario => ({
      title: `a trailer ${name} is malformed HTTP`,
      method: 'POST',
      path: '/plants',
      raw: `POST /plants HTTP/1.1\r\n${json}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n${name}: close\r\n\r\n`,
      ...rejected(40004, 'trailer'),
      after: [thenLists('[]')],
    }),
  ),
  {
    title: 'a body in chunks without an end is malformed HTTP',
    method: 'POST',
    path: '/plants',
    raw: `POST /plants HTTP/1.1\r\n${json}Transfer-Encoding: chunked\r\n\r\n29\r\n${fern}\r\n`,
    endsEarly: true,
    ...rejected(40004),
    after: [thenLists('[]')],
  },
  {
    title: 'headers without an end are malformed HTTP',
    method: 'GET',
    path: '/plants',
    raw: `GET /plants HTTP/1.1\r\n${good}`,
    endsEarly: true,
    ...rejected(40004),
  },
  {
    title: 'a header of 20,000 characters is too large',
    ...lists(),
    headers: [['X-Fern', 'x'.repeat(20_000)]],
    ...rejected(43100, 'headers'),
  },
  {
    title: 'headers of 20,000 characters together are too large',
    ...lists(),
    headers: Array.from({ length: 200 }, (_, index): Header => [`X-Fern-${index}`, 'x'.repeat(90)]),
    ...rejected(43100, 'headers'),
  },
  ...[9_000, 20_000, 60_000].flatMap((length): Scenario[] => [
    {
      title: `a path of ${length} characters is too long`,
      method: 'GET',
      path: `/plants/${'7'.repeat(length)}`,
      ...rejected(41400, 'URI'),
    },
    {
      title: `a query of ${length} characters is too long`,
      method: 'GET',
      path: `/plants?x=${'7'.repeat(length)}`,
      ...rejected(41400, 'URI'),
    },
  ]),
  {
    title: 'CONNECT is not found',
    method: 'CONNECT',
    path: 'plants.test:443',
    ...rejected(40401),
  },
  {
    title: 'an expectation other than 100-continue is not met',
    ...posts(fern, [...JSON_CONTENT, ['Expect', 'a-miracle']]),
    ...rejected(41700, '100-continue'),
    after: [thenLists('[]')],
  },
  {
    title: 'the absolute form of a target is accepted',
    given: three,
    method: 'GET',
    path: 'http://plants.test/plants?limit=2',
    ...succeeds('[{"name":"a"},{"name":"b","tag":""}]', { link: nextLink }),
  },
  {
    title: 'HTTP/1.0 without Host is accepted',
    given: three,
    method: 'GET',
    path: '/plants',
    raw: 'GET /plants HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n',
    ...succeeds(threeBack),
  },
  {
    title: 'an Upgrade header is ignored',
    given: three,
    ...lists(),
    headers: [
      ['Connection', 'close, Upgrade, HTTP2-Settings'],
      ['Upgrade', 'h2c'],
      ['HTTP2-Settings', 'AAMAAABkAAQAAP__'],
    ],
    ...succeeds(threeBack),
  },
];

/** All rows of the API tests, grouped by topic. */
export const scenarioGroups: readonly ScenarioGroup[] = [
  { section: '1 Operations: createPlant', rows: creation },
  { section: '1 Operations: ids in a body', rows: ids },
  { section: '1 Operations: names and tags', rows: textRows },
  { section: '1 Operations: bodies', rows: bodies },
  { section: '1 Operations: idempotent creation', rows: idempotency },
  { section: '1 Operations: listPlants', rows: listing },
  { section: '1 Operations: deletePlant', rows: deletion },
  { section: '1 Operations: routes and methods', rows: routes },
  { section: '1 Operations: base path', rows: underPrefix },
  { section: '2 Who the caller is', rows: callers },
  { section: '2 Who the caller is: content', rows: content },
  { section: '2 Who the caller is: order of checks', rows: order },
  { section: '3 Errors: malformed HTTP', rows: malformed },
];
