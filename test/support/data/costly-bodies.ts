/** A body of the max size that costs a naive parser much time to parse or to validate. */
interface CostlyBody {
  readonly name: string;
  readonly body: Buffer;
}

/** Default limit for the size of a body, in bytes. */
export const BODY_LIMIT = 64 * 1024;

/** Builds a body of the max size: a start, as many items as fit, and an end. */
function fill(before: string, item: (index: number) => string, separator: string, after: string): Buffer {
  const items: string[] = [];
  let bytes = Buffer.byteLength(before) + Buffer.byteLength(after);
  for (let next = item(0); bytes + Buffer.byteLength(separator + next) <= BODY_LIMIT; ) {
    items.push(next);
    bytes += Buffer.byteLength(separator + next);
    next = item(items.length);
  }
  return Buffer.from(before + items.join(separator) + after);
}

function repeat(before: string, item: string, after: string): Buffer {
  return fill(before, () => item, '', after);
}

function list(before: string, item: string, after: string): Buffer {
  return fill(before, () => item, ',', after);
}

const nestedObjects = `${'{"":'.repeat(60)}0${'}'.repeat(60)}`;
const nestedArrays = `${'['.repeat(62)}${']'.repeat(62)}`;

const bodies: Readonly<Record<string, Buffer>> = {
  'a fractional id and an array of zeros': list('{"id":1.0,"name":"n","x":[', '0', ']}'),
  'an integer id and an array of zeros': list('{"id":1,"name":"n","x":[', '0', ']}'),
  'a fractional id and deeply nested objects': list('{"id":1.0,"name":"n","x":[', nestedObjects, ']}'),
  'deeply nested arrays': list('{"id":1.0,"name":"n","x":[', nestedArrays, ']}'),
  'nested and unterminated': repeat('', '[', ''),
  'objects with distinct names in an array': fill('[', (index) => `{"${index}":0}`, ',', ']'),
  'many members with distinct names': fill('{', (index) => `"${index.toString(36)}":1`, ',', '}'),
  'many members with distinct names, and a plant': fill(
    '{"id":7e0,"name":"1e1",',
    (index) => `"${index.toString(36)}":1`,
    ',',
    '}',
  ),
  'many members with empty names': list('{"id":7.0,"name":"n",', '"":0', '}'),
  'empty objects': list('[', '{}', ']'),
  'empty arrays in members': list('{', '"a":[]', '}'),
  'empty strings': list('{"id":7.0,"name":"n","x":[', '""', ']}'),
  literals: list('{"id":7.0,"name":"n","x":[', 'null', ']}'),
  'numbers with every part': list('{"id":7.0,"name":"n","x":[', '-1.5e-3', ']}'),
  'white space alone': repeat('', ' ', ''),
  'white space in a plant': repeat('{"id":7.0,', '\n', '"name":"n"}'),
  'white space between all tokens': repeat('{"id":7.0,"name":"n","x":[0', ' , 0', ']}'),
  'an id of 65,000 digits': repeat('{"name":"n","id":1', '7', '}'),
  'an id with 65,000 zeros after its point': repeat('{"name":"n","id":7.', '0', '}'),
  'an id with 65,000 zeros after its point and a one': repeat('{"name":"n","id":7.', '0', '1}'),
  'an id with an exponent of 65,000 digits': repeat('{"name":"n","id":7e', '9', '}'),
  'an id of 0 with a negative exponent of 65,000 digits': repeat('{"name":"n","id":0e-', '9', '}'),
  'zeros that a negative exponent cancels': repeat('{"name":"n","id":7', '0', 'e-65509}'),
  'a number of 65,000 digits as the name': repeat('{"id":7,"name":1', '7', '}'),
  'repeated ids of many digits': list('{"name":"n",', `"id":${'7'.repeat(500)}`, '}'),
  'repeated ids with an exponent': list('{"name":"n",', '"id":7e0', '}'),
  'a long name': repeat('{"id":7,"name":"', 'n', '"}'),
  'a long name of characters of two bytes': repeat('{"id":7.0,"name":"', 'é', '"}'),
  'a long name of characters of four bytes': repeat('{"id":7.0,"name":"', '🌵', '"}'),
  'a long name of short escapes': repeat('{"id":7.0,"name":"', '\\n', '"}'),
  'a long name of escaped code units': repeat('{"id":7.0,"name":"', '\\u00e9', '"}'),
  'a long name of escaped lone surrogates': repeat('{"id":7.0,"name":"', '\\ud800', '"}'),
  'a long name that ends in an escaped U+0000': repeat('{"id":7.0,"name":"', 'n', '\\u0000"}'),
  'escapes in an unknown field': repeat('{"id":7.0,"name":"n","x":"', '\\"', '"}'),
  'escapes in all names': list('{"id":7.0,"name":"n",', '"\\u0069\\u0065":0', '}'),
  'names that start like known ones': list('{"id":7.0,"name":"n",', '"nam\\u0065s":0', '}'),
  'known names in escapes': list('{"id":7.0,', '"\\u006e\\u0061\\u006d\\u0065":""', '}'),
  'repeated known names': list('{', '"id":1,"name":"","tag":""', '}'),
  'repeated names with long escaped values': list('{"id":7.0,', `"name":"${'\\n'.repeat(400)}"`, '}'),
  'repeated names with short escaped values': list('{"id":7.0,', '"name":"\\n"', '}'),
  'repeated names with nested values': list('{"id":7.0,', `"name":${nestedObjects}`, '}'),
  'repeated __proto__': list('{"id":7.0,"name":"n",', '"__proto__":{}', '}'),
  'not JSON at its last character': list('{"id":7.0,"name":"n","x":[', '0', ']]'),
  'not JSON after characters of two bytes': repeat('{"id":7.0,"name":"', 'é', '"]'),
  'not UTF-8 at its last byte': Buffer.concat([Buffer.alloc(BODY_LIMIT - 1, ' '), Buffer.from([0xc3])]),
};

/**
 * Bodies that are slow for a naive parser, such as `JSON.parse` with a reviver. Parsing takes up to 100 times
 * as long as for a body of the same size with one long name.
 */
export const costlyBodies: readonly CostlyBody[] = Object.entries(bodies).map(([name, body]) => ({
  name,
  body,
}));
