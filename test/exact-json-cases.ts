/** A text, and true when it is JSON by the grammar of RFC 8259. */
export interface JsonCase {
  /** The rule it is about, with the number of the section. */
  readonly rule: string;
  readonly bytes: Buffer;
  readonly valid: boolean;
}

type Text = string | readonly number[];

function bytesOf(text: Text): Buffer {
  return typeof text === 'string' ? Buffer.from(text) : Buffer.from(text);
}

function valid(rule: string, ...texts: readonly Text[]): readonly JsonCase[] {
  return texts.map((text) => ({ rule, bytes: bytesOf(text), valid: true }));
}

function invalid(rule: string, ...texts: readonly Text[]): readonly JsonCase[] {
  return texts.map((text) => ({ rule, bytes: bytesOf(text), valid: false }));
}

/** Bytes between two quotation marks. */
function quoted(...bytes: readonly number[]): readonly number[] {
  return [0x22, ...bytes, 0x22];
}

function characters(from: number, to: number): readonly string[] {
  return Array.from({ length: to - from + 1 }, (_, index) => String.fromCharCode(from + index));
}

const VALUES = ['null', 'true', 'false', '0', '-1.5e+3', '""', '"a"', '[]', '[1]', '{}', '{"a":1}'];

const whitespace = [
  ...valid(
    '§2 each of the four whitespace characters may stand around a value',
    ' 1 ',
    '\t1\t',
    '\n1\n',
    '\r1\r',
  ),
  ...valid(
    '§2 whitespace may stand around each structural character',
    ' [ 1 , 2 ] ',
    '\r\n{\t"a" \n:\r "b"\t,\n"c"\r:\n\n[ ]\t}\r\n',
    '[\n]',
    '{\t}',
  ),
  ...invalid(
    '§2 no other character is whitespace',
    ...[
      '\v',
      '\f',
      '\0',
      '\b',
      '\u001f',
      '\u007f',
      '\u0085',
      '\u00a0',
      '\u1680',
      '\u2003',
      '\u2028',
      '\u2029',
    ]
      .concat('\u200b', '\u202f', '\u3000', '\u2060')
      .flatMap((space) => [`${space}1`, `[1,${space}2]`]),
  ),
  ...invalid(
    '§2 no whitespace within a token',
    'tr ue',
    '1 2',
    '- 1',
    '1. 5',
    '1 .5',
    '1 e5',
    '1e 5',
    '1e+ 5',
  ),
  ...invalid('§2 a text has a value', '', ' ', '\n', '\t\r\n '),
];

const structure = [
  ...valid('§2 any value may be a text', ...VALUES),
  ...valid(
    '§5 an array may have any values',
    ...VALUES.map((value) => `[${value}]`),
    `[${VALUES.join(',')}]`,
  ),
  ...valid('§4 an object may have any values', ...VALUES.map((value) => `{"member":${value}}`)),
  ...valid('§4 names need not be unique', '{"a":1,"a":2}', '{"a":1,"\\u0061":2}', '{"":0,"":{}}'),
  ...valid('§4 any string is a name', '{"":0}', '{" ":0}', '{"\\u0000":0}', '{"\\"":0}', '{"🌱":0}'),
  ...valid(
    '§4 names that mean something to a JavaScript object mean nothing here',
    '{"__proto__":{"id":5}}',
    '{"constructor":{"prototype":{"x":1}}}',
    '{"toString":1,"hasOwnProperty":2,"valueOf":null,"length":-1}',
  ),
  ...invalid('§5 an array must be closed', '[', '[1', '[1,', '[[1]', '["', '[{"a":1]', '[1}'),
  ...invalid('§5 an array must be opened', ']', '1]', '[1]]', '[]]'),
  ...invalid(
    '§5 commas stand between values only',
    '[,]',
    '[1,]',
    '[,1]',
    '[1,,2]',
    '[1 2]',
    '[1;2]',
    '[1:2]',
    ',',
  ),
  ...invalid(
    '§4 an object must be closed',
    '{',
    '{"',
    '{"a',
    '{"a"',
    '{"a":',
    '{"a":1',
    '{"a":1,',
    '{"a":{}',
    '{"a":1]',
  ),
  ...invalid('§4 an object must be opened', '}', '{}}', '"a":1}'),
  ...invalid(
    '§4 commas stand between members only',
    '{,}',
    '{"a":1,}',
    '{,"a":1}',
    '{"a":1,,"b":2}',
    '{"a":1 "b":2}',
  ),
  ...invalid(
    '§4 a member has a name, a colon and a value',
    '{"a"}',
    '{"a":}',
    '{:1}',
    '{"a" 1}',
    '{"a"::1}',
    '{"a"=1}',
  ),
  ...invalid(
    '§4 a name is a string',
    '{a:1}',
    "{'a':1}",
    '{1:1}',
    '{null:1}',
    '{[]:1}',
    '{"a":1,b:2}',
    '{"a"\\u003a1}',
  ),
  ...invalid(
    '§2 a text is one value',
    '1 1',
    'null null',
    '{} {}',
    '[][]',
    '""""',
    '1,2',
    'true,',
    '{}x',
    '1;',
    '1\0',
    '{}#',
  ),
];

const literals = [
  ...valid('§3 the three literals', 'true', 'false', 'null'),
  ...invalid('§3 literals are in lower case', 'True', 'FALSE', 'Null', 'nULL', 'truE'),
  ...invalid('§3 literals are whole', 't', 'tru', 'truee', 'fals', 'nul', 'nulll', 'n', '[tru]', 'nulltrue'),
  ...invalid(
    '§3 there are no other literals',
    ...[
      'undefined',
      'NaN',
      '-NaN',
      'Infinity',
      '-Infinity',
      '+Infinity',
      'inf',
      'nan',
      'None',
      'nil',
      'yes',
      'void 0',
    ],
    ...[
      'a',
      '_',
      '$x',
      'new Date()',
      'function(){}',
      '`a`',
      '/a/',
      '(1)',
      '<a/>',
      '<!-- -->1',
      '@',
      '\\',
      '\\u0031',
      '🌱',
      'é',
    ],
  ),
];

const numbers = [
  ...valid(
    '§6 integers',
    '0',
    '-0',
    '7',
    '-7',
    '10',
    '1234567890',
    '9007199254740993',
    '-9223372036854775808',
  ),
  ...valid('§6 integers of any size', '9223372036854775808', `1${'0'.repeat(400)}`, `-${'9'.repeat(5_000)}`),
  ...valid(
    '§6 fractions',
    '0.0',
    '-0.0',
    '0.5',
    '1.50',
    '3.141592653589793238462643383279',
    `0.${'0'.repeat(999)}1`,
  ),
  ...valid('§6 exponents', '0e0', '1e5', '1E5', '1e+5', '1E-5', '1e005', '-0e-0', '1.5e3', '0e+1'),
  ...valid(
    '§6 exponents beyond any double',
    '1e400',
    '-1e400',
    '1e-400',
    '0e99999',
    '1e99999999999999999999',
    '1E-99999',
  ),
  ...invalid('§6 no leading zeros', '00', '01', '-01', '00.5', '-00', '[012]', '0123'),
  ...invalid('§6 no plus sign before a number', '+1', '+0', '+', '++1', '[+1]', '-+1'),
  ...invalid('§6 one minus sign, and a digit behind it', '-', '--1', '-a', '[-]', '1-', '1-1', '\u22121'),
  ...invalid(
    '§6 digits on both sides of a point',
    '.5',
    '-.5',
    '1.',
    '-1.',
    '.',
    '1.e5',
    '.e5',
    '[1.]',
    '0.',
  ),
  ...invalid('§6 one point', '1.2.3', '1..2', '1.5.', '1,5,'),
  ...invalid(
    '§6 digits in an exponent',
    '1e',
    '1E',
    '1e+',
    '1e-',
    '1ee5',
    '1e+-5',
    '1e5.5',
    '1e5e5',
    'e5',
    '0e',
    '1ex',
  ),
  ...invalid('§6 no other base', '0x1F', '0X1f', '-0x1', '0b11', '0o17', '1F', '#1f', '0x', 'x1f'),
  ...invalid(
    '§6 no separators and no suffixes',
    '1_000',
    '1,000.5',
    "1'000",
    '1n',
    '1f',
    '1L',
    '1d',
    '1%',
    '$1',
    '1px',
  ),
  ...invalid('§6 no other digits', '１', '١', '²', '1²', '½', '٣.٥'),
];

const strings = [
  ...valid(
    '§7 the escapes of two characters',
    '"\\""',
    '"\\\\"',
    '"\\/"',
    '"\\b"',
    '"\\f"',
    '"\\n"',
    '"\\r"',
    '"\\t"',
  ),
  ...valid(
    '§7 the escape of a code unit',
    '"\\u0041"',
    '"\\u00e9"',
    '"\\u00E9"',
    '"\\u0000"',
    '"\\uffff"',
    '"\\u001f"',
  ),
  ...valid(
    '§7 surrogate pairs',
    '"\\ud83c\\udf31"',
    '"\\uD83C\\uDF31"',
    '"\\udbff\\udfff"',
    '"\\ud800\\udc00"',
  ),
  ...valid(
    '§8.2 the grammar lets lone surrogates be escaped',
    '"\\ud800"',
    '"\\udc00"',
    '"\\udf31\\ud83c"',
    '"\\ud83cx"',
    '"\\ud800\\ud800\\udc00"',
  ),
  ...valid(
    '§7 all other characters represent themselves',
    '"/"',
    '"\u007f"',
    '"\u0080"',
    '"\u2028\u2029"',
    '"\ufeff"',
    '"\ufffe"',
    '"🌱"',
    '"\'"',
    '"// no comment"',
  ),
  ...valid('§7 an escaped backslash escapes nothing', '"\\\\"', '"\\\\u00"', '"a\\\\"', '["\\\\","b"]'),
  ...valid('§7 strings of any length', '""', `"${'x'.repeat(10_000)}"`, `"${'\\u0061'.repeat(2_000)}"`),
  ...invalid(
    '§7 control characters must be escaped',
    ...characters(0x00, 0x1f).map((control) => `"a${control}b"`),
  ),
  ...invalid('§7 control characters must be escaped in names too', '{"a\nb":1}', '{"\t":1}', '{"\0":1}'),
  ...invalid(
    '§7 no other escapes',
    ...[..."aceghijklmopqsvwxyzABFNRTU0123456789'`!@#$%&*()-_=+[]{}|;:,.<>? \n"].map((one) => `"\\${one}"`),
  ),
  ...invalid(
    '§7 four hexadecimal digits',
    '"\\u"',
    '"\\u1"',
    '"\\u12"',
    '"\\u123"',
    '"\\u123g"',
    '"\\uG123"',
    '"\\u 123"',
    '"\\u12 4"',
    '"\\u+123"',
    '"\\u-123"',
    '"\\u0x12"',
    '"\\u{1f331}"',
    '"\\U0041"',
    '"\\x41"',
    '"\\u١٢٣٤"',
    '"\\ud83c\\u"',
    '"\\ud83c\\"',
  ),
  ...invalid(
    '§7 a string must be closed',
    '"',
    '"a',
    '"\\',
    '"\\"',
    '"a\\',
    '["a]',
    '{"a:1}',
    '"a\n"',
    '"\\u0022',
  ),
  ...invalid(
    '§7 quotation marks are the straight double ones',
    "'a'",
    '`a`',
    '“a”',
    '«a»',
    '"a\'',
    '\'a"',
    '\\"a\\"',
    '""a""',
    'a"',
  ),
  ...invalid('§7 strings are not joined', '"a" "b"', '"a"+"b"', '"a""b"'),
];

const comments = [
  ...invalid(
    '§2 no comments',
    '// c\n1',
    '1 // c',
    '/* c */ 1',
    '1 /* c */',
    '[1, /* c */ 2]',
    '{"a":/**/1}',
    '# c\n1',
    '1 # c',
    '-- c\n1',
    '/1',
  ),
];

const LATIN_1_I_ACUTE = 0xed;

const encoding = [
  ...valid(
    '§8.1 UTF-8 of one to four bytes',
    quoted(0x7f),
    quoted(0xc2, 0x80),
    quoted(0xdf, 0xbf),
    quoted(0xe0, 0xa0, 0x80),
    quoted(0xed, 0x9f, 0xbf),
    quoted(0xee, 0x80, 0x80),
    quoted(0xef, 0xbf, 0xbf),
    quoted(0xf0, 0x90, 0x80, 0x80),
    quoted(0xf4, 0x8f, 0xbf, 0xbf),
  ),
  ...invalid(
    '§8.1 no bytes that UTF-8 never has',
    quoted(0xfe),
    quoted(0xff),
    quoted(0xc0),
    quoted(0xc1),
    quoted(0xf5),
    [0xff],
    [0xfe, 0x31],
  ),
  ...invalid(
    '§8.1 no continuation without a beginning',
    quoted(0x80),
    quoted(0xbf),
    quoted(0x61, 0x80),
    [0x80],
    [0x31, 0xbf],
  ),
  ...invalid(
    '§8.1 no beginning without its continuation',
    quoted(0xc2),
    quoted(0xe2, 0x82),
    quoted(0xf0, 0x9f, 0x8c),
    quoted(LATIN_1_I_ACUTE),
    quoted(0xc2, 0x61),
    [0x22, 0xf0, 0x9f, 0x8c],
  ),
  ...invalid(
    '§8.1 no overlong forms',
    quoted(0xc0, 0x80),
    quoted(0xc0, 0xaf),
    quoted(0xc1, 0xbf),
    quoted(0xe0, 0x80, 0xaf),
    quoted(0xe0, 0x9f, 0xbf),
    quoted(0xf0, 0x80, 0x80, 0xaf),
    quoted(0xf0, 0x8f, 0xbf, 0xbf),
    [0xc0, 0xb1],
  ),
  ...invalid(
    '§8.1 no surrogates in UTF-8',
    quoted(0xed, 0xa0, 0x80),
    quoted(0xed, 0xbf, 0xbf),
    quoted(0xed, 0xa0, 0xbc, 0xed, 0xbc, 0xb1),
  ),
  ...invalid(
    '§8.1 nothing beyond U+10FFFF',
    quoted(0xf4, 0x90, 0x80, 0x80),
    quoted(0xf7, 0xbf, 0xbf, 0xbf),
    quoted(0xf8, 0x88, 0x80, 0x80, 0x80),
  ),
  ...invalid('§8.1 bytes that are not UTF-8 are not JSON in names either', [
    0x7b,
    ...quoted(0xff),
    0x3a,
    0x31,
    0x7d,
  ]),
  ...invalid(
    '§8.1 no byte order mark',
    [0xef, 0xbb, 0xbf, 0x31],
    [0xef, 0xbb, 0xbf, 0x7b, 0x7d],
    [0xef, 0xbb, 0xbf],
    [0x31, 0xef, 0xbb, 0xbf],
    [0x5b, 0xef, 0xbb, 0xbf, 0x5d],
  ),
  ...invalid(
    '§8.1 no UTF-16 and no UTF-32',
    [...Buffer.from('{"a":1}', 'utf16le')],
    [...Buffer.from('\ufeff{"a":1}', 'utf16le')],
    [...Buffer.from('{"a":1}', 'utf16le').swap16()],
    [0x00, 0x00, 0x00, 0x31],
    [0x31, 0x00, 0x00, 0x00],
    [0xfe, 0xff, 0x00, 0x31],
  ),
];

/**
 * Cases for every rule of the grammar. No invalid one becomes valid as the value of a member
 * (`1,"b":2` would), and no valid one nests deeper than this service reads.
 */
export const jsonCases: readonly JsonCase[] = [
  ...whitespace,
  ...structure,
  ...literals,
  ...numbers,
  ...strings,
  ...comments,
  ...encoding,
];

/** Different notations of one NewPlant with the id 1 and the name `x`. */
export const plantTexts: readonly string[] = [
  '{"id":1,"name":"x"}',
  '{"name":"x","id":1}',
  '\t{\r\n"id" : 1 ,\n "name"\t:\r"x" }\n',
  '{"id":1e0,"name":"x"}',
  '{"id":1.000,"name":"x"}',
  '{"id":10E-1,"name":"x"}',
  '{"\\u0069\\u0064":1,"n\\u0061me":"\\u0078"}',
  '{"id":2,"name":"y","id":1,"name":"x"}',
  '{"id":1.5,"name":7,"id":1.0,"name":"x"}',
  '{"id":1,"name":"x","ID":2,"Name":"y","id ":3}',
  '{"id":1,"name":"x","plant":{"id":2,"name":"y"},"ids":[{"id":3.0}]}',
  '{"plant":{"id":2.0},"id":1.0,"name":"x","last":{"id":1e1}}',
  '{"__proto__":{"id":2,"tag":"t"},"id":1,"name":"x"}',
  '{"__proto__":null,"constructor":1,"id":1.0,"name":"x"}',
  `{"id":1,"name":"x","long":"${'y'.repeat(50_000)}"}`,
  `{"id":1.${'0'.repeat(50_000)},"name":"x"}`,
];
