import { mintSecret } from '../../../src/token.ts';

/**
 * A case of HTTP conformance: bytes to send and the expected responses, from RFC 9112 (HTTP/1.1) and RFC 9110 (semantics).
 * Each case has a separate owner with one plant, 1 "Kept". `{token}` is replaced by a token with all scopes.
 */
export interface WireCase {
  /** The expected behaviour; unique. */
  readonly title: string;
  /** Bytes to send, one per character. */
  readonly sends: string;
  /** Set if the response is another one when the trailers arrive later than the headers. */
  readonly isSentWhole?: true;
  /** Set if the client closes its side after sending. */
  readonly endsEarly?: true;
  /** Expected responses in order: the status of an interim or successful one, the code of an error. */
  readonly answers: readonly number[];
  /** True if the service then closes the connection. Otherwise only the next request on it gets a response. */
  readonly closes: boolean;
  /** The owner's list afterwards; unchanged by default. */
  readonly leaves?: string;
}

interface WireSection {
  readonly section: string;
  readonly cases: readonly WireCase[];
}

export const KEPT = '[{"name":"Kept"}]';

const HOST = 'Host: plants.test\r\n';
const TOKEN = 'Authorization: Bearer {token}\r\n';
const WITH = HOST + TOKEN;
const JSON_TYPE = 'Content-Type: application/json\r\n';
const CHUNKED = 'Transfer-Encoding: chunked\r\n';

const FERN = '{"id":2,"name":"Fern"}';
const LENGTH = `Content-Length: ${FERN.length}\r\n`;
const IN_CHUNKS = `${FERN.length.toString(16)}\r\n${FERN}\r\n0\r\n\r\n`;
const WITH_FERN = '[{"name":"Kept"},{"name":"Fern"}]';

const MALFORMED = 40004;

/** More than the digits of the longest size. */
const ZEROS = '0'.repeat(40);

/** A complete request that would delete the plant, placed where a lax parser would find a second request. */
const SMUGGLED = `DELETE /plants/1 HTTP/1.1\r\n${WITH}\r\n`;

/** Its length with a token of 53 characters. */
const SMUGGLED_LENGTH = SMUGGLED.replace('{token}', mintSecret()).length;

const GET = get('');

/** A list request with additional headers, on a connection that stays open. */
function get(headers: string, target = '/plants?limit=0', version = 'HTTP/1.1'): string {
  return `GET ${target} ${version}\r\n${WITH}${headers}\r\n`;
}

/** A list request whose request line and headers have `length` bytes, with a token of 53 characters. */
function getOf(length: number): string {
  const others = get('X-Fern: \r\n').replace('{token}', mintSecret()).length;
  return get(`X-Fern: ${'x'.repeat(length - others)}\r\n`);
}

/** A given request line before the usual headers. */
function line(requestLine: string): string {
  return `${requestLine}\r\n${WITH}\r\n`;
}

/** A create request with the given framing headers. */
function post(framing: string, content: string, version = 'HTTP/1.1'): string {
  return `POST /plants ${version}\r\n${WITH}${JSON_TYPE}${framing}\r\n${content}`;
}

/** A chunked body with a chunk for each byte. */
function inTinyChunks(content: string): string {
  return `${content.replace(/./g, (byte) => `1\r\n${byte}\r\n`)}0\r\n\r\n`;
}

function succeeds(title: string, sends: string, status = 200): WireCase {
  return { title, sends, answers: [status], closes: false };
}

function creates(title: string, sends: string): WireCase {
  return { ...succeeds(title, sends), leaves: WITH_FERN };
}

/** The request is rejected; the connection stays usable. */
function rejects(title: string, sends: string, code: number): WireCase {
  return { title, sends, answers: [code], closes: false };
}

/** The request is rejected and the connection closed, since the start of the next request is unknown. */
function ends(title: string, sends: string, code = MALFORMED): WireCase {
  return { title, sends, answers: [code], closes: true };
}

const parsing: readonly WireCase[] = [
  succeeds('an empty line before the request line is ignored', `\r\n${GET}`),
  succeeds('a line feed before the request line is ignored', `\n${GET}`),
  ends(
    'a line feed alone does not end a request line',
    'GET /plants?limit=0 HTTP/1.1\nHost: plants.test\n\n',
  ),
  ends(
    'a line feed alone does not end a header',
    `GET / HTTP/1.1\r\nHost: plants.test\nX-Fern: a\r\n\r\n${SMUGGLED}`,
  ),
  ends('a carriage return alone does not end a line', `GET / HTTP/1.1\rHost: plants.test\r\r${SMUGGLED}`),
  ends('a carriage return in a header is rejected', `${get('X-Fern: a\rb\r\n')}${SMUGGLED}`),
  ends('space before the first header is rejected', `GET / HTTP/1.1\r\n ${WITH}\r\n${SMUGGLED}`),
  ends('binary bytes are rejected', `\x00\x01\x02\x03\xff\xfe\r\n\r\n${SMUGGLED}`),
  ends('a TLS ClientHello is rejected', '\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03'),
  { ...ends('headers that never end are rejected', `GET / HTTP/1.1\r\n${HOST}`), endsEarly: true },
  {
    title: 'a connection closed without a byte gets no response',
    sends: '',
    endsEarly: true,
    answers: [],
    closes: true,
  },
];

const versions: readonly WireCase[] = [
  ends('HTTP/0.9 is rejected', `GET /plants\r\n\r\n${SMUGGLED}`),
  {
    title: 'HTTP/1.0 gets a response, then the connection is closed',
    sends: get('', '/plants?limit=0', 'HTTP/1.0'),
    answers: [200],
    closes: true,
  },
  {
    title: 'HTTP/1.0 does not need Host',
    sends: `GET /plants?limit=0 HTTP/1.0\r\n${TOKEN}\r\n`,
    answers: [200],
    closes: true,
  },
  ends(
    'HTTP/1.0 without a header ends after its request line',
    `GET /plants HTTP/1.0\r\n\r\n${SMUGGLED}`,
    40100,
  ),
  ends('HTTP/1.1 without a header is rejected', `GET /plants HTTP/1.1\r\n\r\n${SMUGGLED}`),
  ends('HTTP/2.0 in the request line is rejected', get('', '/plants', 'HTTP/2.0') + SMUGGLED),
  ends('the preface of HTTP/2 is rejected', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  ends('HTTP/1.2 is rejected', get('', '/plants', 'HTTP/1.2') + SMUGGLED),
  ends('HTTP/9.9 is rejected', get('', '/plants', 'HTTP/9.9') + SMUGGLED),
  ends('a version in lower case is rejected', get('', '/plants', 'http/1.1') + SMUGGLED),
  ends('a version without a dot is rejected', get('', '/plants', 'HTTP/11') + SMUGGLED),
  ends('a version with two digits after the dot is rejected', get('', '/plants', 'HTTP/1.11') + SMUGGLED),
  ends('another protocol is rejected', get('', '/plants', 'ICE/1.0') + SMUGGLED),
  ends('ICE is rejected', line('SOURCE /plants ICE/1.0') + SMUGGLED),
  ...['1.0', '1.1', '2.0'].map((version) =>
    ends(`RTSP/${version} is rejected`, get('', '/plants', `RTSP/${version}`) + SMUGGLED),
  ),
  ends('a method of RTSP is rejected with that protocol', line('DESCRIBE /plants RTSP/1.0') + SMUGGLED),
];

const requestLines: readonly WireCase[] = [
  ends('a request line of one word is rejected', line('GET') + SMUGGLED),
  ends('a request line without a target is rejected', line('GET  HTTP/1.1') + SMUGGLED),
  ends('two words after the target are rejected', line('GET /plants HTTP/1.1 x') + SMUGGLED),
  ends('a tab between the words is rejected', line('GET\t/plants\tHTTP/1.1') + SMUGGLED),
  ends('a space before the method is rejected', line(' GET /plants HTTP/1.1') + SMUGGLED),
  ends('a method in lower case is another method', line('get /plants HTTP/1.1') + SMUGGLED, 50100),
  ends('an unknown method is not implemented', line('PLANT /plants HTTP/1.1') + SMUGGLED, 50100),
  ...['DESCRIBE', 'FLUSH', 'PRI', 'SETUP'].map((method) =>
    ends(`${method} is not implemented`, line(`${method} /plants HTTP/1.1`) + SMUGGLED, 50100),
  ),
  ends(
    'a method of 10,000 letters is not implemented',
    line(`${'G'.repeat(10_000)} /plants HTTP/1.1`) + SMUGGLED,
    50100,
  ),
  ends('a method of 20,000 letters is malformed', line(`${'G'.repeat(20_000)} /plants HTTP/1.1`) + SMUGGLED),
  {
    title: 'an unknown method after a body is not implemented',
    sends: post(LENGTH, FERN) + line('PLANT /plants HTTP/1.1') + SMUGGLED,
    answers: [200, 50100],
    closes: true,
    leaves: WITH_FERN,
  },
  {
    title: 'an unknown method after a chunked body is not implemented',
    sends: post(CHUNKED, IN_CHUNKS) + line('PLANT /plants HTTP/1.1') + SMUGGLED,
    answers: [200, 50100],
    closes: true,
    leaves: WITH_FERN,
  },
  ends('a space in the target is rejected', line('GET /plants ?limit=0 HTTP/1.1') + SMUGGLED),
];

const targets: readonly WireCase[] = [
  succeeds('the origin form is accepted', GET),
  succeeds('the absolute form is accepted', get('', 'http://plants.test/plants?limit=0')),
  succeeds('the absolute form takes precedence over Host', get('', 'http://other.test/plants?limit=0')),
  succeeds('the absolute form may have a port', get('', 'http://[::1]:8080/plants?limit=0')),
  ...['http:///plants', 'http://:80/plants', 'http://ash@plants.test/plants', 'http://?limit=0'].map(
    (target) => ends(`the target ${target} is rejected: not a valid http URL`, get('', target) + SMUGGLED),
  ),
  succeeds('the absolute form may have the scheme https', get('', 'HTTPS://plants.test/plants?limit=0')),
  rejects('the absolute form without a path is /, which is no route', get('', 'http://plants.test'), 40401),
  ends('the absolute form with another scheme is rejected', get('', 'ftp://plants.test/plants')),
  ends('the authority form without CONNECT is rejected', get('', 'plants.test:80') + SMUGGLED),
  ends('CONNECT to a host is rejected', `CONNECT plants.test:443 HTTP/1.1\r\n${WITH}\r\n${SMUGGLED}`, 40401),
  succeeds('OPTIONS * is accepted', `OPTIONS * HTTP/1.1\r\n${HOST}\r\n`, 204),
  ends('the asterisk form without OPTIONS is rejected', get('', '*') + SMUGGLED),
  ends('a target without a slash is rejected', get('', 'plants') + SMUGGLED),
  ends('a fragment in the target is rejected', get('', '/plants#x') + SMUGGLED),
  ends('a control character in the target is rejected', get('', '/plants\x01') + SMUGGLED),
  ends('a byte above 0x7F in the target is rejected', get('', '/plants\xe9') + SMUGGLED),
  ends('bad percent-encoding in the target is rejected', get('', '/plants/%zz') + SMUGGLED),
  rejects('a path with .. is no route', get('', '/plants/../plants'), 40401),
];

const hosts: readonly WireCase[] = [
  ends('a request without Host is rejected', `GET /plants HTTP/1.1\r\n${TOKEN}\r\n${SMUGGLED}`),
  ends('two Hosts are rejected', `GET /plants HTTP/1.1\r\n${HOST}${WITH}\r\n${SMUGGLED}`),
  ends('two Hosts that differ are rejected', get('Host: other.test\r\n') + SMUGGLED),
  ends('two Hosts are rejected in HTTP/1.0 too', get(HOST, '/plants', 'HTTP/1.0') + SMUGGLED),
  {
    title: 'an upgrade request gets a normal response, and the bytes after it are the next request',
    sends: `${get('Connection: Upgrade\r\nUpgrade: h2c\r\n')}GET /openapi.json HTTP/1.1\r\n${HOST}A: ${'a'.repeat(800)}${SMUGGLED}`,
    answers: [200, MALFORMED],
    closes: true,
  },
  ends('the host of an absolute URL is checked', `GET http://[::::::/docs HTTP/1.1\r\n${HOST}\r\n`),
  ends('an empty Host is rejected', `GET /plants?limit=0 HTTP/1.1\r\nHost:\r\n${TOKEN}\r\n`),
  ...['[zz]', '[1]', '[:::::]', '[v1]', '[vx.a]', 'a%zz', 'a%', '%', ':80'].map((host) =>
    ends(`the Host ${host} is rejected`, `GET /plants?limit=0 HTTP/1.1\r\nHost: ${host}\r\n${TOKEN}\r\n`),
  ),
  succeeds(
    'a Host may be an IPv6 address with a port',
    `GET /plants?limit=0 HTTP/1.1\r\nHost: [::1]:80\r\n${TOKEN}\r\n`,
  ),
  succeeds(
    'a Host may be an address of a later version (RFC 3986 §3.2.2)',
    `GET /plants?limit=0 HTTP/1.1\r\nHost: [v1.a:b]\r\n${TOKEN}\r\n`,
  ),
  ...[
    'plants.test/x',
    'alice@plants.test',
    'plants test',
    'a.test, b.test',
    'plants.test:x',
    '[::1',
    'plants.test:80:80',
  ].map((host) =>
    ends(`the Host ${host} is rejected`, `GET /plants HTTP/1.1\r\nHost: ${host}\r\n${TOKEN}\r\n${SMUGGLED}`),
  ),
];

const fields: readonly WireCase[] = [
  succeeds('spaces and tabs around a value are not part of it', get('X-Fern:\t  a \t\r\n')),
  succeeds('a header may be empty', get('X-Fern:\r\n')),
  succeeds('bytes above 0x7F in a value are accepted', get('X-Fern: \xe9\xff\r\n')),
  ends('a space before the colon is rejected', get('X-Fern : a\r\n') + SMUGGLED),
  ends('a tab before the colon is rejected', get('X-Fern\t: a\r\n') + SMUGGLED),
  ends('a header without a name is rejected', get(': a\r\n') + SMUGGLED),
  ends('a header without a colon is rejected', get('X-Fern\r\n') + SMUGGLED),
  ends('a space in a name is rejected', get('X Fern: a\r\n') + SMUGGLED),
  ends('a bracket in a name is rejected', get('X(Fern): a\r\n') + SMUGGLED),
  ends('U+0000 in a name is rejected', get('X\x00Fern: a\r\n') + SMUGGLED),
  ends('U+0000 in a value is rejected', get('X-Fern: a\x00b\r\n') + SMUGGLED),
  ends('a control character in a value is rejected', get('X-Fern: a\x08b\r\n') + SMUGGLED),
  ends('a folded header is rejected', get('X-Fern: a\r\n b\r\n') + SMUGGLED),
  ends(
    'a header folded by a tab is rejected',
    get('X-Fern: a\r\n\tTransfer-Encoding: chunked\r\n') + SMUGGLED,
  ),
];

const sizes: readonly WireCase[] = [
  succeeds('16,384 bytes of request line and headers are accepted', getOf(16_384)),
  ends('16,385 bytes of request line and headers are too large', getOf(16_385) + SMUGGLED, 43100),
  ends('a header of 20,000 bytes is too large', get(`X-Fern: ${'x'.repeat(20_000)}\r\n`) + SMUGGLED, 43100),
  ends(
    'a header with 20,000 spaces is too large',
    get(`X-Fern:${' '.repeat(20_000)}x\r\n`) + SMUGGLED,
    43100,
  ),
  ends('2,000 headers are too large', get('X-Fern: xxxx\r\n'.repeat(2_000)) + SMUGGLED, 43100),
  succeeds('100 headers are accepted', get('X:\r\n'.repeat(98))),
  creates(
    'a line end at the start of the body does not count as the 101st header',
    post(`${'X:\r\n'.repeat(96)}Content-Length: ${FERN.length + 1}\r\n`, `\n${FERN}`),
  ),
  ends('101 headers are too many', get('X:\r\n'.repeat(99)) + SMUGGLED, 43100),
  ends(
    'a Content-Length behind 1,000 headers is not ignored',
    post(`${'X:\r\n'.repeat(1_000)}Content-Length: ${SMUGGLED_LENGTH}\r\n`, SMUGGLED),
    43100,
  ),
  ends('a name of 20,000 bytes is too large', get(`${'X'.repeat(20_000)}: a\r\n`) + SMUGGLED, 43100),
];

const uris: readonly WireCase[] = [
  rejects('a target of 9,000 bytes is too long', get('', `/plants?x=${'7'.repeat(9_000)}`), 41400),
  ends('a target of 20,000 bytes is too long', get('', `/plants?x=${'7'.repeat(20_000)}`), 41400),
  ends('a target of 20,000 bytes without an end is too long', `GET /${'7'.repeat(20_000)}`, 41400),
  ...[
    ['without Host', line('GET LONG HTTP/1.1').replace(HOST, '')],
    ['with two Hosts', get(HOST, 'LONG')],
    ['with a fragment', get('', 'LONG#x')],
    ['with gzip and chunked', get('Transfer-Encoding: gzip, chunked\r\n', 'LONG') + IN_CHUNKS],
    ['with chunked in HTTP/1.0', get(`Connection: keep-alive\r\n${CHUNKED}`, 'LONG', 'HTTP/1.0') + IN_CHUNKS],
  ].map(([what, sends = '']) =>
    ends(
      `a target of 9,000 bytes ${what} is malformed`,
      sends.replace('LONG', `/plants?x=${'7'.repeat(9_000)}`) + SMUGGLED,
    ),
  ),
  rejects(
    'an absolute URL with a host of 9,000 bytes is too long',
    get('', `http://${'h'.repeat(9_000)}/plants`),
    41400,
  ),
  {
    title: 'a target of 20,000 bytes after a body is too long',
    sends: post(LENGTH, FERN) + get('', `/plants?x=${'7'.repeat(20_000)}`),
    answers: [200, 41400],
    closes: true,
    leaves: WITH_FERN,
  },
  {
    title: '16,385 bytes of request line and headers after a chunked body are too large',
    sends: post(CHUNKED, IN_CHUNKS) + getOf(16_385),
    answers: [200, 43100],
    closes: true,
    leaves: WITH_FERN,
  },
  {
    title: 'a header of 20,000 bytes after a body is too large',
    sends: post(LENGTH, FERN) + get(`X-Fern: ${'x'.repeat(20_000)}\r\n`),
    answers: [200, 43100],
    closes: true,
    leaves: WITH_FERN,
  },
];

/** Headers that some parsers accept as `Transfer-Encoding: chunked` and others do not. */
const disguises: readonly (readonly [what: string, header: string])[] = [
  ['another name for chunked', 'Transfer-Encoding: xchunked'],
  ['gzip and chunked', 'Transfer-Encoding: gzip, chunked'],
  ['chunked and gzip', 'Transfer-Encoding: chunked, gzip'],
  ['chunked and identity', 'Transfer-Encoding: chunked, identity'],
  ['identity', 'Transfer-Encoding: identity'],
  ['chunked twice in one header', 'Transfer-Encoding: chunked, chunked'],
  ['chunked twice in two headers', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked'],
  ['chunked and then identity in two headers', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity'],
  ['identity and then chunked in two headers', 'Transfer-Encoding: identity\r\nTransfer-Encoding: chunked'],
  ['chunked in quotes', 'Transfer-Encoding: "chunked"'],
  ['chunked with a parameter', 'Transfer-Encoding: chunked;q=1'],
  ['chunked after a comma', 'Transfer-Encoding: ,chunked'],
  ['chunked after a vertical tab', 'Transfer-Encoding: \x0bchunked'],
  ['chunked after U+0000', 'Transfer-Encoding: \x00chunked'],
  ['chunked after a byte above 0x7F', 'Transfer-Encoding: \xa0chunked'],
  ['chunked on a folded line', 'Transfer-Encoding:\r\n chunked'],
  ['a space before the colon', 'Transfer-Encoding : chunked'],
  ['a space before the name', ' Transfer-Encoding: chunked'],
  ['chunked after a bare line feed', 'X-Fern: a\nTransfer-Encoding: chunked'],
  ['chunked after a bare carriage return', 'X-Fern: a\rTransfer-Encoding: chunked'],
];

const transferEncodings: readonly WireCase[] = [
  creates('chunked is accepted', post(CHUNKED, IN_CHUNKS)),
  creates('chunked is accepted in any case', post('transfer-encoding: CHUNKED\r\n', IN_CHUNKS)),
  creates('chunked is accepted after a tab', post('Transfer-Encoding:\tchunked\r\n', IN_CHUNKS)),
  ends(
    'CL.TE: Content-Length and then chunked is rejected',
    post(`Content-Length: 5\r\n${CHUNKED}`, `0\r\n\r\n${SMUGGLED}`),
  ),
  ends(
    'TE.CL: chunked and then Content-Length is rejected',
    post(`${CHUNKED}Content-Length: 4\r\n`, `5c\r\n${SMUGGLED}\r\n0\r\n\r\n`),
  ),
  ends(
    'CL.TE on a method without content is rejected',
    `${get(`Content-Length: 5\r\n${CHUNKED}`)}0\r\n\r\n${SMUGGLED}`,
  ),
  ...disguises.map(([what, header]) =>
    ends(`TE.TE: ${what} is rejected`, post(`${header}\r\n`, `0\r\n\r\n${SMUGGLED}`)),
  ),
  ...disguises.map(([what, header]) =>
    ends(
      `CL.TE in disguise: Content-Length and ${what} is rejected`,
      post(`Content-Length: 5\r\n${header}\r\n`, `0\r\n\r\n${SMUGGLED}`),
    ),
  ),
  creates(
    'Transfer_Encoding with an underscore is not Transfer-Encoding',
    post(`Transfer_Encoding: chunked\r\n${LENGTH}`, FERN),
  ),
  ends('chunked in HTTP/1.0 is rejected', post(CHUNKED, `${IN_CHUNKS}${SMUGGLED}`, 'HTTP/1.0')),
  ends(
    'chunked in HTTP/1.0 closes the connection despite keep-alive',
    post(`Connection: keep-alive\r\n${CHUNKED}`, `${IN_CHUNKS}${SMUGGLED}`, 'HTTP/1.0'),
  ),
  ends(
    'chunked in HTTP/1.0 is rejected for a list too',
    get(`Connection: keep-alive\r\n${CHUNKED}`, '/plants', 'HTTP/1.0') + IN_CHUNKS + SMUGGLED,
  ),
];

const lengths: readonly WireCase[] = [
  creates('Content-Length is accepted', post(LENGTH, FERN)),
  creates(
    'leading zeros in a Content-Length are ignored',
    post(`Content-Length: 00${FERN.length}\r\n`, FERN),
  ),
  ends(
    'two Content-Lengths that differ are rejected',
    post(`${LENGTH}Content-Length: 0\r\n`, `${FERN}${SMUGGLED}`),
  ),
  ends('two Content-Lengths that agree are rejected', post(`${LENGTH}${LENGTH}`, FERN)),
  ends('two Content-Lengths in one header are rejected', post('Content-Length: 22, 22\r\n', FERN)),
  ...['-1', '+22', '0x16', '2 2', '22a', '22.0', '2e1', '1_0', '١', ''].map((length) =>
    ends(
      `the Content-Length "${length}" is rejected`,
      post(`Content-Length: ${length}\r\n`, `${FERN}${SMUGGLED}`),
    ),
  ),
  ends(
    'a Content-Length beyond 64 bits is rejected',
    post('Content-Length: 18446744073709551638\r\n', `${FERN}${SMUGGLED}`),
  ),
  ...['65537', '18446744073709551615'].map((length) =>
    ends(
      `a Content-Length of ${length} is rejected before it is read`,
      post(`Content-Length: ${length}\r\n`, SMUGGLED),
      41300,
    ),
  ),
  {
    ...ends('content shorter than its Content-Length is rejected', post('Content-Length: 99\r\n', FERN)),
    endsEarly: true,
  },
  rejects('a request without framing has no content', post('', ''), 40001),
  {
    title: 'bytes after a request without framing are the next request',
    sends: post('', FERN),
    answers: [40001, MALFORMED],
    closes: true,
  },
  rejects(
    'the content of a rejected GET is not parsed as a request',
    get(`Content-Length: ${SMUGGLED_LENGTH}\r\n`) + SMUGGLED,
    41500,
  ),
];

const chunks: readonly WireCase[] = [
  creates('chunks of one byte are joined', post(CHUNKED, inTinyChunks(FERN))),
  {
    title: 'the chunks of two bodies do not add up',
    sends: post(CHUNKED, inTinyChunks(FERN.padEnd(300))).repeat(2),
    answers: [200, 40002],
    closes: false,
    leaves: WITH_FERN,
  },
  ends(
    'more than 512 chunks of one byte are too many while the body is incomplete',
    post(CHUNKED, '1\r\n \r\n'.repeat(1_000)),
    41300,
  ),
  creates('the size of a chunk may have leading zeros', post(CHUNKED, `0000${IN_CHUNKS}`)),
  creates('a chunk extension is ignored', post(CHUNKED, `16;fern=a;b="c;d"\r\n${FERN}\r\n0;last\r\n\r\n`)),
  creates('trailers are ignored', post(CHUNKED, `16\r\n${FERN}\r\n0\r\nX-Fern: a\r\n\r\n`)),
  creates(
    'the trailer Authorization is ignored',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\nAuthorization: Bearer x\r\n\r\n`),
  ),
  ends(
    'the trailer Content-Length is rejected',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\nContent-Length: 99\r\n\r\n${SMUGGLED}`),
  ),
  ends(
    'the trailer Connection is rejected',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\nConnection: close\r\n\r\n${SMUGGLED}`),
  ),
  ends(
    'the trailer Proxy-Connection is rejected',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\nProxy-Connection: close\r\n\r\n${SMUGGLED}`),
  ),
  ...['GET /nowhere', 'PATCH /plants', 'DELETE /plants/x'].map((target) => ({
    ...ends(
      `the trailer Connection is rejected before the rest of ${target}`,
      `${target} HTTP/1.1\r\n${HOST}${CHUNKED}\r\n0\r\nConnection: close\r\n\r\n${SMUGGLED}`,
    ),
    isSentWhole: true as const,
  })),
  ends('a chunk without a size is rejected', post(CHUNKED, `\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends('a size that is not hexadecimal is rejected', post(CHUNKED, `xyz\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends('a negative size is rejected', post(CHUNKED, `-16\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends('a size with 0x before it is rejected', post(CHUNKED, `0x16\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends(
    'a size beyond 64 bits is rejected',
    post(CHUNKED, `10000000000000016\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
  ),
  ends('a space after the size is rejected', post(CHUNKED, `16 \r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends('a space before the size is rejected', post(CHUNKED, ` 16\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ...['16 ;a=b', '16; a=b', '16;a =b', '16;a= b', '16;a=b ', '16;a="b" ;c', '16;\ta'].map((line) =>
    ends(
      `white space outside quotes in ${JSON.stringify(line)} is rejected`,
      post(CHUNKED, `${line}\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
    ),
  ),
  creates(
    'white space in a quoted chunk extension is accepted',
    post(CHUNKED, `16;a="b c"\r\n${FERN}\r\n0\r\n\r\n`),
  ),
  ends('a line feed alone after the size is rejected', post(CHUNKED, `16\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends(
    'a line feed in a chunk extension is rejected',
    post(CHUNKED, `16;a\nb\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
  ),
  ends(
    'a carriage return in a chunk extension is rejected',
    post(CHUNKED, `16;a\rb\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
  ),
  ends('a line feed alone after a chunk is rejected', post(CHUNKED, `16\r\n${FERN}\n0\r\n\r\n${SMUGGLED}`)),
  ends('a chunk longer than its size is rejected', post(CHUNKED, `2\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends('a chunk shorter than its size is rejected', post(CHUNKED, `17\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends(
    'a trailer without a colon is rejected',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\nX-Fern\r\n\r\n${SMUGGLED}`),
  ),
  creates('100 trailers are accepted', post(CHUNKED, `16\r\n${FERN}\r\n0\r\n${'X:\r\n'.repeat(100)}\r\n`)),
  ends(
    '101 trailers are too many',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\n${'X:\r\n'.repeat(101)}\r\n${SMUGGLED}`),
    43100,
  ),
  ends(
    'trailers of 20,000 bytes are too large',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\nX-Fern: ${'x'.repeat(20_000)}\r\n\r\n${SMUGGLED}`),
    43100,
  ),
  creates(
    'a line of 16,384 bytes with the size of a chunk and its extension is accepted',
    post(CHUNKED, `${'16;'.padEnd(16_382, 'x')}\r\n${FERN}\r\n0\r\n\r\n`),
  ),
  ends(
    'a line of 16,385 bytes with the size of a chunk and its extension is too large',
    post(CHUNKED, `${'16;'.padEnd(16_383, 'x')}\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
    41300,
  ),
  ends(
    'chunk extensions of 20,000 bytes are too large',
    post(CHUNKED, `16;${'x'.repeat(20_000)}\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
    41300,
  ),
  ends(
    'chunks above the body limit are rejected',
    post(CHUNKED, `10001\r\n${' '.repeat(65_537)}\r\n0\r\n\r\n${SMUGGLED}`),
    41300,
  ),
  ...['10001', '7fffffff', 'ffffffffffffffff', `${ZEROS}7fffffff`].map((size) =>
    ends(`a chunk of ${size} bytes is rejected before it is read`, post(CHUNKED, `${size}\r\n{`), 41300),
  ),
  ends(
    'a last chunk above the body limit is rejected before it is read',
    post(CHUNKED, `16\r\n${FERN}\r\n10000\r\n`),
    41300,
  ),
  ends(
    'a chunk that is too large and not JSON is rejected before it is read',
    `POST /plants HTTP/1.1\r\n${WITH}${CHUNKED}\r\n7fffffff\r\n`,
    41500,
  ),
  ends(
    'a chunk that is not JSON is rejected before it is read, despite many zeros before its size',
    `POST /plants HTTP/1.1\r\n${WITH}${CHUNKED}\r\n${ZEROS}3\r\n`,
    41500,
  ),
  ends(
    'a chunk that is too large gets the error of its token',
    `POST /plants HTTP/1.1\r\n${HOST}${JSON_TYPE}${CHUNKED}\r\n7fffffff\r\n{`,
    40100,
  ),
  ends(
    'a chunk that is too large gets the error of its path',
    `POST /nothing HTTP/1.1\r\n${WITH}${JSON_TYPE}${CHUNKED}\r\n7fffffff\r\n{`,
    40401,
  ),
  { ...ends('chunks without an end are rejected', post(CHUNKED, `16\r\n${FERN}\r\n`)), endsEarly: true },
];

const HUNDRED = Array.from({ length: 100 });

const persistence: readonly WireCase[] = [
  {
    title: 'Connection: close is honoured',
    sends: get('Connection: close\r\n') + SMUGGLED,
    answers: [200],
    closes: true,
  },
  {
    title: 'Connection: CLOSE is honoured',
    sends: get('Connection: x, CLOSE\r\n') + SMUGGLED,
    answers: [200],
    closes: true,
  },
  ...[
    'close, keep-alive',
    'keep-alive,\tCLOSE',
    'keep-alive\r\nConnection: close',
    'x,close ,keep-alive',
  ].map((value) => ({
    title: `Connection: ${JSON.stringify(value)} in HTTP/1.0 closes the connection`,
    sends: get(`Connection: ${value}\r\n`, '/plants?limit=0', 'HTTP/1.0') + SMUGGLED,
    answers: [200],
    closes: true,
  })),
  {
    title: 'Connection: close, keep-alive with an error in HTTP/1.0 closes the connection',
    sends: get('Connection: close, keep-alive\r\n', '/nothing', 'HTTP/1.0') + SMUGGLED,
    answers: [40401],
    closes: true,
  },
  succeeds(
    'HTTP/1.0 keeps the connection if no member of Connection is close',
    get('Connection: closed, x-close, keep-alive\r\n', '/plants?limit=0', 'HTTP/1.0'),
  ),
  succeeds(
    'HTTP/1.0 may ask to keep the connection',
    get('Connection: keep-alive\r\n', '/plants?limit=0', 'HTTP/1.0'),
  ),
  {
    title: '100 pipelined lists get 100 responses',
    sends: GET.repeat(100),
    answers: HUNDRED.map(() => 200),
    closes: false,
  },
  {
    title: '100 pipelined creations of one plant get 100 responses in order, and the first creates it',
    sends: post(LENGTH, FERN).repeat(100),
    answers: HUNDRED.map((_, index) => (index === 0 ? 200 : 40002)),
    closes: false,
    leaves: WITH_FERN,
  },
  {
    title: 'pipelined writes and reads get responses in order',
    sends: [post(LENGTH, FERN), GET, `DELETE /plants/2 HTTP/1.1\r\n${WITH}\r\n`, GET].join(''),
    answers: [200, 200, 204, 200],
    closes: false,
  },
  {
    title: 'errors do not end a pipeline',
    sends: [get('', '/nothing'), GET, `PUT /plants HTTP/1.1\r\n${WITH}\r\n`, GET].join(''),
    answers: [40401, 200, 40500, 200],
    closes: false,
  },
  {
    title: 'a malformed request ends a pipeline after the responses before it',
    sends: `${GET}${GET}GET /plants HTTP/1.1\r\nX Fern: a\r\n\r\n${SMUGGLED}`,
    answers: [200, 200, MALFORMED],
    closes: true,
  },
  ...[
    ['one byte', '#'],
    ['half of the headers', `POST /plants HTTP/1.1\r\n${WITH}`],
    ['half of the content', post('Content-Length: 99\r\n', FERN)],
  ].map(([part, bytes]) => ({
    title: `${part} of a request, then the end, is rejected after the response before it`,
    sends: `DELETE /plants/1 HTTP/1.1\r\n${WITH}\r\n${bytes}`,
    endsEarly: true as const,
    answers: [204, MALFORMED],
    closes: true,
    leaves: '[]',
  })),
  {
    title: 'no request after a body that is too large gets a response',
    sends: `${GET}${post('Content-Length: 65537\r\n', ' '.repeat(65_537))}${SMUGGLED}`,
    answers: [200, 41300],
    closes: true,
  },
];

const methods: readonly WireCase[] = [
  succeeds('HEAD has no content', `HEAD /plants HTTP/1.1\r\n${WITH}\r\n`),
  rejects('HEAD of an unknown path has no content either', `HEAD /nothing HTTP/1.1\r\n${WITH}\r\n`, 40401),
  ends('HEAD that is malformed has no content', `HEAD /plants HTTP/1.1\r\n${WITH}A b: c\r\n\r\n`),
  {
    ...ends('HEAD whose headers never end has no content', `HEAD /plants HTTP/1.1\r\n${HOST}`),
    endsEarly: true,
  },
  succeeds('OPTIONS needs no token', `OPTIONS /plants HTTP/1.1\r\n${HOST}\r\n`, 204),
  rejects(
    'OPTIONS with content that is not JSON is rejected',
    `OPTIONS /plants HTTP/1.1\r\n${HOST}Content-Length: ${SMUGGLED_LENGTH}\r\n\r\n${SMUGGLED}`,
    41500,
  ),
  succeeds(
    'OPTIONS skips JSON content',
    `OPTIONS /plants HTTP/1.1\r\n${HOST}${JSON_TYPE}Content-Length: ${SMUGGLED_LENGTH}\r\n\r\n${SMUGGLED}`,
    204,
  ),
  rejects('TRACE is not allowed', `TRACE /plants HTTP/1.1\r\n${WITH}\r\n`, 40500),
  rejects(
    'PUT is not allowed',
    `PUT /plants HTTP/1.1\r\n${WITH}Content-Length: ${SMUGGLED_LENGTH}\r\n\r\n${SMUGGLED}`,
    40500,
  ),
  ends('CONNECT to a path is rejected', `CONNECT /plants HTTP/1.1\r\n${WITH}\r\n${SMUGGLED}`, 40401),
];

const expectations: readonly WireCase[] = [
  {
    title: 'Expect: 100-continue gets a 100 before the response',
    sends: post(`Expect: 100-continue\r\n${LENGTH}`, FERN),
    answers: [100, 200],
    closes: false,
    leaves: WITH_FERN,
  },
  {
    title: 'Expect: 100-Continue (upper case) gets a 100 too',
    sends: post(`Expect: 100-Continue\r\n${LENGTH}`, FERN),
    answers: [100, 200],
    closes: false,
    leaves: WITH_FERN,
  },
  ...[
    ['100-continue twice in one header', 'Expect: 100-continue, 100-continue\r\n'],
    ['100-continue twice in two headers', 'Expect: 100-continue\r\nExpect: 100-continue\r\n'],
    ['a list with empty members', 'Expect: ,100-continue ,\r\n'],
  ].map(([what, headers]) => ({
    title: `Expect: ${what} gets one 100`,
    sends: post(`${headers}${LENGTH}`, FERN),
    answers: [100, 200],
    closes: false,
    leaves: WITH_FERN,
  })),
  ...['Expect:', 'Expect: ,', 'Expect: \t, ,', 'Expect:\r\nExpect:'].map((headers) =>
    creates(`${JSON.stringify(headers)} without a member gets no 100`, post(`${headers}\r\n${LENGTH}`, FERN)),
  ),
  ends(
    'an expectation next to 100-continue is rejected',
    post(`Expect: 100-continue, a-miracle\r\n${LENGTH}`, FERN),
    41700,
  ),
  ends(
    'Expect with an invalid token gets its error and no 100',
    `POST /plants HTTP/1.1\r\n${HOST}Authorization: Bearer x\r\n${JSON_TYPE}Expect: 100-continue\r\n${LENGTH}\r\n${FERN}`,
    40101,
  ),
  ends(
    'Expect with too large a body gets its error and no 100',
    post('Expect: 100-continue\r\nContent-Length: 65537\r\n', ''),
    41300,
  ),
  ends(
    'Expect with content that is not JSON gets its error and no 100',
    `POST /plants HTTP/1.1\r\n${WITH}Content-Type: text/plain\r\nExpect: 100-continue\r\n${LENGTH}\r\n${FERN}`,
    41500,
  ),
  rejects('any other expectation is rejected', post(`Expect: a-miracle\r\n${LENGTH}`, FERN), 41700),
  {
    title: 'Expect in HTTP/1.0 is ignored',
    sends: post(`Expect: 100-continue\r\n${LENGTH}`, FERN, 'HTTP/1.0'),
    answers: [200],
    closes: true,
    leaves: WITH_FERN,
  },
];

const hops: readonly WireCase[] = [
  succeeds(
    'an offer to upgrade to HTTP/2 is ignored',
    get('Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n'),
  ),
  succeeds(
    'an offer of a WebSocket is ignored',
    get(
      'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n',
    ),
  ),
  succeeds('Connection: Authorization does not remove the token', get('Connection: Authorization, Host\r\n')),
];

const credentials: readonly WireCase[] = [
  rejects('two Authorization headers are rejected', get(TOKEN), 40000),
  rejects(
    'a token in the query does not authenticate',
    `GET /plants?access_token={token} HTTP/1.1\r\n${HOST}\r\n`,
    40100,
  ),
];

/** All cases. */
export const wireSections: readonly WireSection[] = [
  { section: 'RFC 9112 §2.2 Message Parsing', cases: parsing },
  { section: 'RFC 9112 §2.3 HTTP Version', cases: versions },
  { section: 'RFC 9112 §3 Request Line', cases: requestLines },
  { section: 'RFC 9112 §3.2 Request Target', cases: targets },
  { section: 'RFC 9112 §3.2, RFC 9110 §7.2 Host', cases: hosts },
  { section: 'RFC 9112 §5 Field Syntax', cases: fields },
  { section: 'RFC 9110 §5.4 Field Limits, RFC 6585 §5', cases: sizes },
  { section: 'RFC 9110 §15.5.15 URI Too Long', cases: uris },
  { section: 'RFC 9112 §6.1, §11.2 Transfer-Encoding and Request Smuggling', cases: transferEncodings },
  { section: 'RFC 9112 §6.2, §6.3, RFC 9110 §8.6 Content-Length', cases: lengths },
  { section: 'RFC 9112 §7.1 Chunked Transfer Coding', cases: chunks },
  { section: 'RFC 9112 §9.3 Persistence and Pipelining', cases: persistence },
  { section: 'RFC 9110 §9 Methods', cases: methods },
  { section: 'RFC 9110 §10.1.1 Expect', cases: expectations },
  { section: 'RFC 9110 §7.6.1, §7.8 Connection and Upgrade', cases: hops },
  { section: 'RFC 9110 §11.6.2, RFC 6750 §2 Authorization', cases: credentials },
];
