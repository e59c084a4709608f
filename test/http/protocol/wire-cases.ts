/**
 * What a connection must see, as a table of bytes: cases from RFC 9112 (HTTP/1.1) and RFC 9110 (HTTP semantics). Each has an
 * owner of its own, with one plant, 1 "Kept", and a token that may do everything in the place of `{token}`.
 */
export interface WireCase {
  /** What holds, in plain words; no two cases share one. */
  readonly title: string;
  /** All that is sent, one byte a character. */
  readonly sends: string;
  /** Whether the client says after it that no more will come. */
  readonly endsEarly?: true;
  /** All the answers, in their order: the status of an interim one or of a success, the code of an error. */
  readonly answers: readonly number[];
  /** Whether the service then closes the connection; otherwise the next request on it must be answered, and no other. */
  readonly closes: boolean;
  /** The list of the owner afterwards; unchanged unless given. */
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

/** A whole request that would delete what must be kept, for the places where a second request could hide. */
const SMUGGLED = `DELETE /plants/1 HTTP/1.1\r\n${WITH}\r\n`;

/** Its length with a token in its place: 53 characters. */
const SMUGGLED_LENGTH = SMUGGLED.replace('{token}', 'x'.repeat(53)).length;

const GET = get('');

/** A list, on a connection that stays open, with more headers. */
function get(headers: string, target = '/plants?limit=0', version = 'HTTP/1.1'): string {
  return `GET ${target} ${version}\r\n${WITH}${headers}\r\n`;
}

/** A request line of its own before the usual headers. */
function line(requestLine: string): string {
  return `${requestLine}\r\n${WITH}\r\n`;
}

/** A creation, with these headers for its framing. */
function post(framing: string, content: string, version = 'HTTP/1.1'): string {
  return `POST /plants ${version}\r\n${WITH}${JSON_TYPE}${framing}\r\n${content}`;
}

function succeeds(title: string, sends: string, status = 200): WireCase {
  return { title, sends, answers: [status], closes: false };
}

function creates(title: string, sends: string): WireCase {
  return { ...succeeds(title, sends), leaves: WITH_FERN };
}

/** Refused, with the connection left as good as it was. */
function refuses(title: string, sends: string, code: number): WireCase {
  return { title, sends, answers: [code], closes: false };
}

/** Refused, and closed, since nobody knows where the next request begins or what to make of the client. */
function ends(title: string, sends: string, code = MALFORMED): WireCase {
  return { title, sends, answers: [code], closes: true };
}

const parsing: readonly WireCase[] = [
  succeeds('an empty line before the request line is passed over', `\r\n${GET}`),
  ends('a line feed alone ends no line', 'GET /plants?limit=0 HTTP/1.1\nHost: plants.test\n\n'),
  ends(
    'a line feed alone ends no header',
    `GET / HTTP/1.1\r\nHost: plants.test\nX-Fern: a\r\n\r\n${SMUGGLED}`,
  ),
  ends('a carriage return alone ends no line', `GET / HTTP/1.1\rHost: plants.test\r\r${SMUGGLED}`),
  ends('a carriage return in a header is refused', `${get('X-Fern: a\rb\r\n')}${SMUGGLED}`),
  ends('space before the first header is refused', `GET / HTTP/1.1\r\n ${WITH}\r\n${SMUGGLED}`),
  ends('bytes that are no text at all are refused', `\x00\x01\x02\x03\xff\xfe\r\n\r\n${SMUGGLED}`),
  ends('the greeting of TLS is refused', '\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03'),
  { ...ends('headers that never end are refused', `GET / HTTP/1.1\r\n${HOST}`), endsEarly: true },
  { title: 'nothing at all is no request', sends: '', endsEarly: true, answers: [], closes: true },
];

const versions: readonly WireCase[] = [
  ends('HTTP/0.9 is refused', `GET /plants\r\n\r\n${SMUGGLED}`),
  {
    title: 'HTTP/1.0 is answered and closed',
    sends: get('', '/plants?limit=0', 'HTTP/1.0'),
    answers: [200],
    closes: true,
  },
  {
    title: 'HTTP/1.0 needs no Host',
    sends: `GET /plants?limit=0 HTTP/1.0\r\n${TOKEN}\r\n`,
    answers: [200],
    closes: true,
  },
  ends('HTTP/2.0 in the request line is refused', get('', '/plants', 'HTTP/2.0') + SMUGGLED),
  ends('the preface of HTTP/2 is refused', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  ends('HTTP/1.2 is refused', get('', '/plants', 'HTTP/1.2') + SMUGGLED),
  ends('HTTP/9.9 is refused', get('', '/plants', 'HTTP/9.9') + SMUGGLED),
  ends('a version in lower case is refused', get('', '/plants', 'http/1.1') + SMUGGLED),
  ends('a version without its point is refused', get('', '/plants', 'HTTP/11') + SMUGGLED),
  ends('a version with a digit too many is refused', get('', '/plants', 'HTTP/1.11') + SMUGGLED),
  ends('another protocol is refused', get('', '/plants', 'ICE/1.0') + SMUGGLED),
];

const requestLines: readonly WireCase[] = [
  ends('a request line of one word is refused', line('GET') + SMUGGLED),
  ends('a request line without a target is refused', line('GET  HTTP/1.1') + SMUGGLED),
  ends('two words behind the target are refused', line('GET /plants HTTP/1.1 x') + SMUGGLED),
  ends('a tab between the words is refused', line('GET\t/plants\tHTTP/1.1') + SMUGGLED),
  ends('a space before the method is refused', line(' GET /plants HTTP/1.1') + SMUGGLED),
  ends('a method in lower case is another method', line('get /plants HTTP/1.1') + SMUGGLED, 50100),
  ends('an unknown method is not implemented', line('PLANT /plants HTTP/1.1') + SMUGGLED, 50100),
  ends(
    'a method of 10,000 letters is not implemented',
    line(`${'G'.repeat(10_000)} /plants HTTP/1.1`) + SMUGGLED,
    50100,
  ),
  ends('a method of 20,000 letters is malformed', line(`${'G'.repeat(20_000)} /plants HTTP/1.1`) + SMUGGLED),
  {
    title: 'an unknown method behind a body is not implemented',
    sends: post(LENGTH, FERN) + line('PLANT /plants HTTP/1.1') + SMUGGLED,
    answers: [200, 50100],
    closes: true,
    leaves: WITH_FERN,
  },
  {
    title: 'an unknown method behind a chunked body is not implemented',
    sends: post(CHUNKED, IN_CHUNKS) + line('PLANT /plants HTTP/1.1') + SMUGGLED,
    answers: [200, 50100],
    closes: true,
    leaves: WITH_FERN,
  },
  ends('a space in the target is refused', line('GET /plants ?limit=0 HTTP/1.1') + SMUGGLED),
];

const targets: readonly WireCase[] = [
  succeeds('the origin form is understood', GET),
  succeeds('the absolute form is understood', get('', 'http://plants.test/plants?limit=0')),
  succeeds('the absolute form wins over Host', get('', 'http://other.test/plants?limit=0')),
  succeeds('the absolute form may have a port', get('', 'http://[::1]:8080/plants?limit=0')),
  ...['http:///plants', 'http://:80/plants', 'http://ash@plants.test/plants', 'http://?limit=0'].map(
    (target) => ends(`the target ${target} is refused, which no http URL may be`, get('', target) + SMUGGLED),
  ),
  succeeds('the absolute form may say https', get('', 'HTTPS://plants.test/plants?limit=0')),
  refuses(
    'the absolute form without a path is the root, where nothing is',
    get('', 'http://plants.test'),
    40401,
  ),
  ends('the absolute form of another scheme is refused', get('', 'ftp://plants.test/plants')),
  ends('the authority form is for CONNECT alone', get('', 'plants.test:80') + SMUGGLED),
  ends('CONNECT finds no proxy here', `CONNECT plants.test:443 HTTP/1.1\r\n${WITH}\r\n${SMUGGLED}`, 40401),
  succeeds('the asterisk form asks about the server', `OPTIONS * HTTP/1.1\r\n${HOST}\r\n`, 204),
  ends('the asterisk form is for OPTIONS alone', get('', '*') + SMUGGLED),
  ends('a target without a slash is refused', get('', 'plants') + SMUGGLED),
  ends('a fragment in the target is refused', get('', '/plants#x') + SMUGGLED),
  ends('a control character in the target is refused', get('', '/plants\x01') + SMUGGLED),
  ends('a byte above 0x7F in the target is refused', get('', '/plants\xe9') + SMUGGLED),
  ends('bad percent-encoding in the target is refused', get('', '/plants/%zz') + SMUGGLED),
  refuses('a path that climbs is no path of ours', get('', '/plants/../plants'), 40401),
];

const hosts: readonly WireCase[] = [
  ends('a request without Host is refused', `GET /plants HTTP/1.1\r\n${TOKEN}\r\n${SMUGGLED}`),
  ends('two Hosts are refused', `GET /plants HTTP/1.1\r\n${HOST}${WITH}\r\n${SMUGGLED}`),
  ends('two Hosts that differ are refused', get('Host: other.test\r\n') + SMUGGLED),
  ends('two Hosts are refused in HTTP/1.0 too', get(HOST, '/plants', 'HTTP/1.0') + SMUGGLED),
  {
    title: 'a request to upgrade is answered, and what follows it is the next request',
    sends: `${get('Connection: Upgrade\r\nUpgrade: h2c\r\n')}GET /openapi.json HTTP/1.1\r\n${HOST}A: ${'a'.repeat(800)}${SMUGGLED}`,
    answers: [200, MALFORMED],
    closes: true,
  },
  ends('the host of an absolute URL is checked', `GET http://[::::::/docs HTTP/1.1\r\n${HOST}\r\n`),
  ends('an empty Host is rejected', `GET /plants?limit=0 HTTP/1.1\r\nHost:\r\n${TOKEN}\r\n`),
  ...['[zz]', '[1]', '[:::::]', 'a%zz', 'a%', '%', ':80'].map((host) =>
    ends(`the Host ${host} is rejected`, `GET /plants?limit=0 HTTP/1.1\r\nHost: ${host}\r\n${TOKEN}\r\n`),
  ),
  succeeds(
    'a Host may be an IPv6 address with a port',
    `GET /plants?limit=0 HTTP/1.1\r\nHost: [::1]:80\r\n${TOKEN}\r\n`,
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
    ends(`the Host ${host} is refused`, `GET /plants HTTP/1.1\r\nHost: ${host}\r\n${TOKEN}\r\n${SMUGGLED}`),
  ),
];

const fields: readonly WireCase[] = [
  succeeds('spaces and tabs around a value are not part of it', get('X-Fern:\t  a \t\r\n')),
  succeeds('a header may be empty', get('X-Fern:\r\n')),
  succeeds('bytes above 0x7F in a value mean nothing', get('X-Fern: \xe9\xff\r\n')),
  ends('a space before the colon is refused', get('X-Fern : a\r\n') + SMUGGLED),
  ends('a tab before the colon is refused', get('X-Fern\t: a\r\n') + SMUGGLED),
  ends('a header without a name is refused', get(': a\r\n') + SMUGGLED),
  ends('a header without a colon is refused', get('X-Fern\r\n') + SMUGGLED),
  ends('a space in a name is refused', get('X Fern: a\r\n') + SMUGGLED),
  ends('a bracket in a name is refused', get('X(Fern): a\r\n') + SMUGGLED),
  ends('U+0000 in a name is refused', get('X\x00Fern: a\r\n') + SMUGGLED),
  ends('U+0000 in a value is refused', get('X-Fern: a\x00b\r\n') + SMUGGLED),
  ends('a control character in a value is refused', get('X-Fern: a\x08b\r\n') + SMUGGLED),
  ends('a folded header is refused', get('X-Fern: a\r\n b\r\n') + SMUGGLED),
  ends(
    'a header folded by a tab is refused',
    get('X-Fern: a\r\n\tTransfer-Encoding: chunked\r\n') + SMUGGLED,
  ),
];

const sizes: readonly WireCase[] = [
  ends('a header of 20,000 bytes is too large', get(`X-Fern: ${'x'.repeat(20_000)}\r\n`) + SMUGGLED, 43100),
  ends('2,000 headers are too large', get('X-Fern: xxxx\r\n'.repeat(2_000)) + SMUGGLED, 43100),
  succeeds('1,000 headers that are small are taken', get('X:\r\n'.repeat(998))),
  ends('1,001 headers are too many, small as they are', get('X:\r\n'.repeat(999)) + SMUGGLED, 43100),
  ends('a name of 20,000 bytes is too large', get(`${'X'.repeat(20_000)}: a\r\n`) + SMUGGLED, 43100),
];

const uris: readonly WireCase[] = [
  refuses('a target of 9,000 bytes is too long', get('', `/plants?x=${'7'.repeat(9_000)}`), 41400),
  ends('a target of 20,000 bytes is too long', get('', `/plants?x=${'7'.repeat(20_000)}`), 41400),
  ends('a target of 20,000 bytes without an end is too long', `GET /${'7'.repeat(20_000)}`, 41400),
  {
    title: 'a target of 20,000 bytes behind a body is too long',
    sends: post(LENGTH, FERN) + get('', `/plants?x=${'7'.repeat(20_000)}`),
    answers: [200, 41400],
    closes: true,
    leaves: WITH_FERN,
  },
  {
    title: 'a header of 20,000 bytes behind a body is too large',
    sends: post(LENGTH, FERN) + get(`X-Fern: ${'x'.repeat(20_000)}\r\n`),
    answers: [200, 43100],
    closes: true,
    leaves: WITH_FERN,
  },
];

/** Names and values that a lax parser takes for `Transfer-Encoding: chunked` and a strict one does not, or the other way. */
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
  ['chunked behind a comma', 'Transfer-Encoding: ,chunked'],
  ['chunked behind a vertical tab', 'Transfer-Encoding: \x0bchunked'],
  ['chunked behind U+0000', 'Transfer-Encoding: \x00chunked'],
  ['chunked behind a byte above 0x7F', 'Transfer-Encoding: \xa0chunked'],
  ['chunked on a folded line', 'Transfer-Encoding:\r\n chunked'],
  ['a space before the colon', 'Transfer-Encoding : chunked'],
  ['a space before the name', ' Transfer-Encoding: chunked'],
  ['chunked behind a bare line feed', 'X-Fern: a\nTransfer-Encoding: chunked'],
  ['chunked behind a bare carriage return', 'X-Fern: a\rTransfer-Encoding: chunked'],
];

const transferEncodings: readonly WireCase[] = [
  creates('chunked is understood', post(CHUNKED, IN_CHUNKS)),
  creates('chunked is understood in any case', post('transfer-encoding: CHUNKED\r\n', IN_CHUNKS)),
  creates('chunked is understood behind a tab', post('Transfer-Encoding:\tchunked\r\n', IN_CHUNKS)),
  ends(
    'CL.TE: Content-Length and then chunked is refused',
    post(`Content-Length: 5\r\n${CHUNKED}`, `0\r\n\r\n${SMUGGLED}`),
  ),
  ends(
    'TE.CL: chunked and then Content-Length is refused',
    post(`${CHUNKED}Content-Length: 4\r\n`, `5c\r\n${SMUGGLED}\r\n0\r\n\r\n`),
  ),
  ends(
    'CL.TE on a method without content is refused',
    `${get(`Content-Length: 5\r\n${CHUNKED}`)}0\r\n\r\n${SMUGGLED}`,
  ),
  ...disguises.map(([what, header]) =>
    ends(`TE.TE: ${what} is refused`, post(`${header}\r\n`, `0\r\n\r\n${SMUGGLED}`)),
  ),
  ...disguises.map(([what, header]) =>
    ends(
      `CL.TE in disguise: Content-Length beside ${what} is refused`,
      post(`Content-Length: 5\r\n${header}\r\n`, `0\r\n\r\n${SMUGGLED}`),
    ),
  ),
  creates(
    'a header that only looks like Transfer-Encoding frames nothing',
    post(`Transfer_Encoding: chunked\r\n${LENGTH}`, FERN),
  ),
  ends('chunked in HTTP/1.0 is refused', post(CHUNKED, `${IN_CHUNKS}${SMUGGLED}`, 'HTTP/1.0')),
  ends(
    'chunked in HTTP/1.0 ends the connection that the client asks to keep',
    post(`Connection: keep-alive\r\n${CHUNKED}`, `${IN_CHUNKS}${SMUGGLED}`, 'HTTP/1.0'),
  ),
  ends(
    'chunked in HTTP/1.0 is refused for a list too',
    get(`Connection: keep-alive\r\n${CHUNKED}`, '/plants', 'HTTP/1.0') + IN_CHUNKS + SMUGGLED,
  ),
];

const lengths: readonly WireCase[] = [
  creates('Content-Length is understood', post(LENGTH, FERN)),
  creates('zeros before a Content-Length change nothing', post(`Content-Length: 00${FERN.length}\r\n`, FERN)),
  ends(
    'two Content-Lengths that differ are refused',
    post(`${LENGTH}Content-Length: 0\r\n`, `${FERN}${SMUGGLED}`),
  ),
  ends('two Content-Lengths that agree are refused', post(`${LENGTH}${LENGTH}`, FERN)),
  ends('two Content-Lengths in one header are refused', post('Content-Length: 22, 22\r\n', FERN)),
  ...['-1', '+22', '0x16', '2 2', '22a', '22.0', '2e1', '1_0', '١', ''].map((length) =>
    ends(
      `the Content-Length "${length}" is refused`,
      post(`Content-Length: ${length}\r\n`, `${FERN}${SMUGGLED}`),
    ),
  ),
  ends(
    'a Content-Length beyond 64 bits is refused',
    post('Content-Length: 18446744073709551638\r\n', `${FERN}${SMUGGLED}`),
  ),
  ends(
    'a Content-Length above the limit is refused unread',
    post('Content-Length: 65537\r\n', SMUGGLED),
    41300,
  ),
  {
    ...ends('content shorter than its Content-Length is refused', post('Content-Length: 99\r\n', FERN)),
    endsEarly: true,
  },
  refuses('no framing means no content', post('', ''), 40001),
  {
    title: 'what follows a request without framing is the next request',
    sends: post('', FERN),
    answers: [40001, MALFORMED],
    closes: true,
  },
  refuses(
    'content that GET does not take does not become a request',
    get(`Content-Length: ${SMUGGLED_LENGTH}\r\n`) + SMUGGLED,
    41500,
  ),
];

const chunks: readonly WireCase[] = [
  creates(
    'chunks of one byte are joined',
    post(CHUNKED, `${[...FERN].map((byte) => `1\r\n${byte}\r\n`).join('')}0\r\n\r\n`),
  ),
  creates('the size of a chunk may have zeros before it', post(CHUNKED, `0000${IN_CHUNKS}`)),
  creates(
    'a chunk extension is passed over',
    post(CHUNKED, `16;fern=a;b="c;d"\r\n${FERN}\r\n0;last\r\n\r\n`),
  ),
  creates('trailers are passed over', post(CHUNKED, `16\r\n${FERN}\r\n0\r\nX-Fern: a\r\n\r\n`)),
  creates(
    'a trailer that would authenticate is passed over',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\nAuthorization: Bearer x\r\n\r\n`),
  ),
  ends(
    'a trailer that would frame is refused',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\nContent-Length: 99\r\n\r\n${SMUGGLED}`),
  ),
  ends('a chunk without a size is refused', post(CHUNKED, `\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends(
    'a size that is no hexadecimal number is refused',
    post(CHUNKED, `xyz\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
  ),
  ends('a negative size is refused', post(CHUNKED, `-16\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends('a size with 0x before it is refused', post(CHUNKED, `0x16\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends(
    'a size beyond 64 bits is refused',
    post(CHUNKED, `10000000000000016\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
  ),
  ends('a space behind the size is refused', post(CHUNKED, `16 \r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends('a space before the size is refused', post(CHUNKED, ` 16\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends('a line feed alone behind the size is refused', post(CHUNKED, `16\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends(
    'a line feed in a chunk extension is refused',
    post(CHUNKED, `16;a\nb\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
  ),
  ends(
    'a carriage return in a chunk extension is refused',
    post(CHUNKED, `16;a\rb\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
  ),
  ends('a line feed alone behind a chunk is refused', post(CHUNKED, `16\r\n${FERN}\n0\r\n\r\n${SMUGGLED}`)),
  ends('a chunk longer than its size is refused', post(CHUNKED, `2\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends('a chunk shorter than its size is refused', post(CHUNKED, `17\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`)),
  ends(
    'a trailer that is no header is refused',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\nX-Fern\r\n\r\n${SMUGGLED}`),
  ),
  ends(
    'trailers of 20,000 bytes are too large',
    post(CHUNKED, `16\r\n${FERN}\r\n0\r\nX-Fern: ${'x'.repeat(20_000)}\r\n\r\n${SMUGGLED}`),
    43100,
  ),
  ends(
    'chunk extensions of 20,000 bytes are too large',
    post(CHUNKED, `16;${'x'.repeat(20_000)}\r\n${FERN}\r\n0\r\n\r\n${SMUGGLED}`),
    41300,
  ),
  ends(
    'chunks of more than the limit are refused',
    post(CHUNKED, `10001\r\n${' '.repeat(65_537)}\r\n0\r\n\r\n${SMUGGLED}`),
    41300,
  ),
  { ...ends('chunks without an end are refused', post(CHUNKED, `16\r\n${FERN}\r\n`)), endsEarly: true },
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
  succeeds(
    'HTTP/1.0 may ask to keep the connection',
    get('Connection: keep-alive\r\n', '/plants?limit=0', 'HTTP/1.0'),
  ),
  {
    title: '100 lists at once get 100 answers',
    sends: GET.repeat(100),
    answers: HUNDRED.map(() => 200),
    closes: false,
  },
  {
    title: '100 creations of one plant at once get 100 answers in their order, and one creates it',
    sends: post(LENGTH, FERN).repeat(100),
    answers: HUNDRED.map((_, index) => (index === 0 ? 200 : 40002)),
    closes: false,
    leaves: WITH_FERN,
  },
  {
    title: 'a write and a read behind it are answered in their order',
    sends: [post(LENGTH, FERN), GET, `DELETE /plants/2 HTTP/1.1\r\n${WITH}\r\n`, GET].join(''),
    answers: [200, 200, 204, 200],
    closes: false,
  },
  {
    title: 'errors do not break a pipeline',
    sends: [get('', '/nothing'), GET, `PUT /plants HTTP/1.1\r\n${WITH}\r\n`, GET].join(''),
    answers: [40401, 200, 40500, 200],
    closes: false,
  },
  {
    title: 'a malformed request ends a pipeline behind the answers before it',
    sends: `${GET}${GET}GET /plants HTTP/1.1\r\nX Fern: a\r\n\r\n${SMUGGLED}`,
    answers: [200, 200, MALFORMED],
    closes: true,
  },
  {
    title: 'nothing is answered behind a body that is too large',
    sends: `${GET}${post('Content-Length: 65537\r\n', ' '.repeat(65_537))}${SMUGGLED}`,
    answers: [200, 41300],
    closes: true,
  },
];

const methods: readonly WireCase[] = [
  succeeds('HEAD has no content', `HEAD /plants HTTP/1.1\r\n${WITH}\r\n`),
  refuses('HEAD of nothing has no content either', `HEAD /nothing HTTP/1.1\r\n${WITH}\r\n`, 40401),
  succeeds('OPTIONS needs no token', `OPTIONS /plants HTTP/1.1\r\n${HOST}\r\n`, 204),
  refuses(
    'OPTIONS takes no content but JSON',
    `OPTIONS /plants HTTP/1.1\r\n${HOST}Content-Length: ${SMUGGLED_LENGTH}\r\n\r\n${SMUGGLED}`,
    41500,
  ),
  succeeds(
    'OPTIONS skips JSON content',
    `OPTIONS /plants HTTP/1.1\r\n${HOST}${JSON_TYPE}Content-Length: ${SMUGGLED_LENGTH}\r\n\r\n${SMUGGLED}`,
    204,
  ),
  refuses('TRACE is not allowed', `TRACE /plants HTTP/1.1\r\n${WITH}\r\n`, 40500),
  refuses(
    'PUT is not allowed',
    `PUT /plants HTTP/1.1\r\n${WITH}Content-Length: ${SMUGGLED_LENGTH}\r\n\r\n${SMUGGLED}`,
    40500,
  ),
  ends('CONNECT to a path finds nothing', `CONNECT /plants HTTP/1.1\r\n${WITH}\r\n${SMUGGLED}`, 40401),
];

const expectations: readonly WireCase[] = [
  {
    title: 'Expect: 100-continue gets a 100 before the answer',
    sends: post(`Expect: 100-continue\r\n${LENGTH}`, FERN),
    answers: [100, 200],
    closes: false,
    leaves: WITH_FERN,
  },
  {
    title: 'Expect: 100-Continue is the same',
    sends: post(`Expect: 100-Continue\r\n${LENGTH}`, FERN),
    answers: [100, 200],
    closes: false,
    leaves: WITH_FERN,
  },
  ends(
    'Expect with a token that opens nothing gets its error and no 100',
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
  refuses('any other expectation is refused', post(`Expect: a-miracle\r\n${LENGTH}`, FERN), 41700),
  {
    title: 'Expect in HTTP/1.0 is passed over',
    sends: post(`Expect: 100-continue\r\n${LENGTH}`, FERN, 'HTTP/1.0'),
    answers: [200],
    closes: true,
    leaves: WITH_FERN,
  },
];

const hops: readonly WireCase[] = [
  succeeds(
    'an offer to upgrade to HTTP/2 is passed over',
    get('Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n'),
  ),
  succeeds(
    'an offer of a WebSocket is passed over',
    get(
      'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n',
    ),
  ),
  succeeds('Connection cannot take away the token', get('Connection: Authorization, Host\r\n')),
];

const credentials: readonly WireCase[] = [
  refuses('two Authorization headers are refused', get(TOKEN), 40000),
  refuses(
    'a token in the query authenticates nobody',
    `GET /plants?access_token={token} HTTP/1.1\r\n${HOST}\r\n`,
    40100,
  ),
];

/** The whole table. */
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
