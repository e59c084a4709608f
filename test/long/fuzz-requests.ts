import { METHODS } from 'node:http';
import fc from 'fast-check';
import type { Header } from '../support/clients/raw-http.ts';
import { BODY_LIMIT } from '../support/data/costly-bodies.ts';

/** A request as bytes, one per character. */
export interface FuzzedRequest {
  readonly bytes: string;
  /** True if it is framed properly and so gets exactly one response; otherwise its meaning is undefined. */
  readonly isWhole: boolean;
  readonly isHead: boolean;
}

interface Parts {
  readonly method: string;
  readonly target: string;
  readonly headers: readonly Header[];
  readonly body: Uint8Array | undefined;
  /** Lengths of the chunks, repeated; none means Content-Length. */
  readonly chunks: readonly number[];
}

/** Few ids, so that requests meet the same plants, and lists stay short. */
const ids = [
  '0',
  '-0',
  '1',
  '2',
  '3',
  '-1',
  '7.0',
  '8e0',
  '1e3',
  '9007199254740993',
  '-9223372036854775808',
  '9223372036854775807',
];
const noIds = [
  '9223372036854775808',
  '1e400',
  '1.5',
  '"7"',
  'null',
  'true',
  '01',
  '+1',
  '-',
  '{}',
  '[]',
  'NaN',
  '0x1',
];

const oneByte = fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code));
const visible = fc.integer({ min: 0x21, max: 0x7e }).map((code) => String.fromCharCode(code));
const texts = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 20 }),
  fc.string({ unit: 'binary', maxLength: 20 }),
  fc.constantFrom(
    '',
    'Fern',
    '\0',
    '\ud800',
    '\udfff\ud800',
    '‮',
    "'; DROP TABLE plants; --",
    '__proto__',
    'x'.repeat(3_000),
  ),
);

const jsonTexts = fc.oneof(
  { weight: 6, arbitrary: texts.map((text) => JSON.stringify(text)) },
  {
    weight: 1,
    arbitrary: fc.constantFrom('null', '1', '{}', '[]', '"\\u0000"', '"\\ud800"', '"\\x"', '"', 'Fern'),
  },
);

const plants = fc
  .tuple(
    fc.oneof(
      { weight: 5, arbitrary: fc.constantFrom(...ids) },
      { weight: 1, arbitrary: fc.constantFrom(...noIds) },
    ),
    jsonTexts,
    fc.option(jsonTexts),
    fc.option(fc.tuple(jsonTexts, fc.json({ maxDepth: 3 }))),
  )
  .map(([id, name, tag, other]) => {
    const members = [`"id":${id}`, `"name":${name}`];
    if (tag !== null) members.push(`"tag":${tag}`);
    if (other !== null) members.push(`${other[0]}:${other[1]}`);
    return `{${members.join(',')}}`;
  });

/** Edits that break a text. */
const edits = fc.array(
  fc.record({
    at: fc.nat({ max: 4_000 }),
    drops: fc.nat({ max: 4 }),
    inserts: fc.oneof(
      fc.string({ unit: oneByte, maxLength: 3 }),
      fc.constantFrom('\r\n', '\n', '\r\n\r\n', '\0', '"', '{', '[', ',', ':', '\\u'),
    ),
  }),
  { minLength: 1, maxLength: 3 },
);

function edit(text: string, changes: readonly { at: number; drops: number; inserts: string }[]): string {
  return changes.reduce((changed, { at, drops, inserts }) => {
    const from = at % (changed.length + 1);
    return changed.slice(0, from) + inserts + changed.slice(from + drops);
  }, text);
}

/** The UTF-8 bytes of a text, one per character. */
function asBytes(text: string): string {
  return Buffer.from(text).toString('latin1');
}

const bodies: fc.Arbitrary<Uint8Array> = fc.oneof(
  { weight: 8, arbitrary: plants.map((text) => Buffer.from(text)) },
  {
    weight: 4,
    arbitrary: fc
      .tuple(plants, edits)
      .map(([text, changes]) => Buffer.from(edit(asBytes(text), changes), 'latin1')),
  },
  { weight: 2, arbitrary: fc.json().map((text) => Buffer.from(text)) },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 100 }) },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom(
        '',
        '[',
        '['.repeat(65),
        '['.repeat(5_000),
        `{"id":1,"name":"${'x'.repeat(BODY_LIMIT)}"}`,
        '\ufeff{}',
      )
      .map((text) => Buffer.from(text)),
  },
);

const limits = fc.oneof(
  fc.nat({ max: 20 }).map(String),
  fc.constantFrom('', '-1', '2147483647', '2147483648', '1e2', ' 1', '٣', '%31', '1%00'),
);
const parameters = fc.tuple(
  fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom('limit', 'cursor') },
    {
      weight: 1,
      arbitrary: fc.constantFrom('access_token', 'x', '', 'limit[]', '__proto__', '%', 'li%6dit'),
    },
  ),
  fc.oneof(
    { weight: 3, arbitrary: limits },
    { weight: 1, arbitrary: fc.base64String({ maxLength: 24 }) },
    { weight: 1, arbitrary: fc.string({ unit: visible, maxLength: 10 }) },
  ),
);
const queries = fc
  .array(parameters, { maxLength: 3 })
  .map((pairs) =>
    pairs.length === 0 ? '' : `?${pairs.map(([name, value]) => `${name}=${value}`).join('&')}`,
  );
const paths = fc.constantFrom(...ids, ...ids, ...noIds).map((id) => `/plants/${encodeURIComponent(id)}`);
const targets = fc.oneof(
  queries.map((query) => `/plants${query}`),
  paths,
  fc.constantFrom(
    ...[
      '/',
      '*',
      '/openapi.json',
      '/docs',
      '/live',
      '/metrics',
      '//plants',
      '/plants/',
      '/plants/1/2',
      '/plants/%',
    ],
    ...['/plants/%ff', '/../plants', 'http://plants.test/plants', 'plants', `/${'x'.repeat(9_000)}`],
  ),
  fc.string({ unit: visible, maxLength: 30 }).map((text) => `/${text}`),
);

const methods = fc.constantFrom(...METHODS, 'PLANT', 'get', '');

function credentials(tokens: readonly string[]): fc.Arbitrary<readonly Header[]> {
  const valid = fc.constantFrom(...tokens).map((token): Header[] => [['Authorization', `Bearer ${token}`]]);
  const none = fc.constantFrom<readonly Header[]>(
    [],
    [['Authorization', 'Bearer']],
    [['Authorization', 'Basic YTpi']],
  );
  const bad = fc
    .tuple(fc.constantFrom(...tokens), edits)
    .map(([token, changes]): Header[] => [['Authorization', asValue(edit(`Bearer ${token}`, changes))]]);
  return fc.oneof(
    { weight: 20, arbitrary: valid },
    { weight: 1, arbitrary: none },
    { weight: 1, arbitrary: bad },
  );
}

const contentTypes = fc.oneof(
  { weight: 8, arbitrary: fc.constant<readonly Header[]>([['Content-Type', 'application/json']]) },
  {
    weight: 1,
    arbitrary: fc.constantFrom<readonly Header[]>(
      [],
      [['Content-Type', 'application/json; charset=utf-16']],
      [['Content-Type', 'text/plain']],
      [['Content-Type', ';']],
      [['Content-Type', '']],
    ),
  },
);

/** Header names that the service may interpret, except those that frame a message. */
const names = [
  ...['Accept', 'Accept-Encoding', 'Connection', 'Cookie', 'Forwarded', 'Idempotency-Key', 'Idempotency-Key'],
  ...['If-None-Match', 'Origin', 'Range', 'TE', 'Trailer', 'Upgrade', 'X-Forwarded-For', 'X-Request-Id'],
  ...['traceparent', '__proto__', 'constructor'],
];
/** Header names that are usually rejected. */
const touchyNames = ['Authorization', 'Content-Encoding', 'Content-Type', 'Expect', 'Host'];
const values = fc.oneof(
  fc.constantFrom(
    '',
    '*',
    'close',
    'keep-alive',
    'gzip',
    'identity',
    '100-continue',
    'h2c',
    'websocket',
    'trailers',
    'bytes=0-',
    '"x"',
    'a, b',
    '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    'key-1',
    'key-2',
  ),
  fc.string({ unit: oneByte, maxLength: 20 }).map(asValue),
);
const otherHeaders = fc.array(
  fc.tuple(
    fc.oneof(
      { weight: 20, arbitrary: fc.constantFrom(...names) },
      { weight: 1, arbitrary: fc.constantFrom(...touchyNames) },
      {
        weight: 1,
        arbitrary: fc.string({ unit: fc.constantFrom(...'aZ0-_.~'), minLength: 1, maxLength: 8 }),
      },
    ),
    values,
  ),
  { maxLength: 3 },
);

/** Removes the bytes that end or invalidate a header. */
function asValue(text: string): string {
  return text.replace(/[^\t\x20-\x7e\x80-\xff]/g, '');
}

const HOST: Header = ['Host', 'plants.test'];

const nothing = fc.constant(undefined);

/** Valid calls of the operations, calls with wrong parts, and arbitrary requests. */
const operations: fc.Arbitrary<Pick<Parts, 'method' | 'target' | 'body'>> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ method: fc.constant('POST'), target: fc.constant('/plants'), body: bodies }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      method: fc.constant('GET'),
      target: queries.map((query) => `/plants${query}`),
      body: nothing,
    }),
  },
  { weight: 2, arbitrary: fc.record({ method: fc.constant('DELETE'), target: paths, body: nothing }) },
  { weight: 2, arbitrary: fc.record({ method: methods, target: targets, body: fc.oneof(bodies, nothing) }) },
);

const chunkings = fc.oneof(
  { weight: 4, arbitrary: fc.constant<readonly number[]>([]) },
  { weight: 1, arbitrary: fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 3 }) },
);

function parts(tokens: readonly string[]): fc.Arbitrary<Parts> {
  return fc
    .tuple(operations, credentials(tokens), contentTypes, otherHeaders, chunkings)
    .map(([operation, credentials, type, other, chunks]) => ({
      ...operation,
      headers: [HOST, ...credentials, ...type, ...other],
      chunks,
    }));
}

function render({ method, target, headers, body, chunks }: Parts): string {
  const content = body === undefined ? '' : Buffer.from(body).toString('latin1');
  const isChunked = body !== undefined && chunks.length > 0;
  const framing: Header[] = isChunked
    ? [['Transfer-Encoding', 'chunked']]
    : body === undefined
      ? []
      : [['Content-Length', String(content.length)]];
  const lines = [...headers, ...framing].map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${target} HTTP/1.1\r\n${lines.join('')}\r\n${isChunked ? inChunks(content, chunks) : content}`;
}

function inChunks(content: string, sizes: readonly number[]): string {
  const pieces: string[] = [];
  for (let at = 0, count = 0; at < content.length; count += 1) {
    // A long body is not split into single bytes.
    const size = (sizes[count % sizes.length] ?? 1) * Math.ceil(content.length / 1_000);
    const piece = content.slice(at, at + size);
    pieces.push(`${piece.length.toString(16)}\r\n${piece}\r\n`);
    at += size;
  }
  return `${pieces.join('')}0\r\n\r\n`;
}

/** Any request: most are framed properly, some have damage anywhere. */
export function anyRequest(tokens: readonly string[]): fc.Arbitrary<FuzzedRequest> {
  const whole = parts(tokens).map((some) => ({
    bytes: render(some),
    isWhole: true,
    isHead: some.method === 'HEAD',
  }));
  const damaged = fc
    .tuple(parts(tokens), edits)
    .map(([some, changes]) => ({ bytes: edit(render(some), changes), isWhole: false, isHead: false }));
  return fc.oneof({ weight: 9, arbitrary: whole }, { weight: 1, arbitrary: damaged });
}
