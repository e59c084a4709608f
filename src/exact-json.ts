import { isUtf8 } from 'node:buffer';
import { parseIntegerSource } from './plant.ts';

/** Max nesting of arrays and objects. RFC 8259 §9 allows such a limit; a plant as JSON has one level. */
export const MAX_JSON_DEPTH = 64;

const TAB = 0x09;
const LINE_FEED = 0x0a;
const RETURN = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const SLASH = 0x2f;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const CAPITAL_E = 0x45;
const OPENING_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSING_BRACKET = 0x5d;
const A = 0x61;
const B = 0x62;
const E = 0x65;
const F = 0x66;
const N = 0x6e;
const R = 0x72;
const T = 0x74;
const U = 0x75;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;

/** The bit that makes an ASCII letter lower case. */
const LOWER_CASE = 0x20;

const MAX_EXACT_DIGITS = 15;
const ESCAPED_UNIT_LENGTH = '\\u0000'.length;

// Lookup tables of 256 flags are the fastest way to classify bytes. A read past the end of the input counts
// as byte 0. Byte 0 has no flag in any table, so every loop ends there.
const isSpace = tableOf((byte) => [TAB, LINE_FEED, RETURN, SPACE].includes(byte));
const isDigit = tableOf((byte) => byte >= ZERO && byte <= NINE);
const isPlain = tableOf((byte) => byte >= SPACE && byte !== QUOTE && byte !== BACKSLASH);

function tableOf(is: (byte: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => Number(is(byte)));
}

/** A top-level field to find, and the position of its value. `end` is 0 until the field is found. */
interface Member {
  readonly name: string;
  start: number;
  end: number;
}

/** The top-level fields to find. */
interface Search {
  readonly members: readonly Member[];
  /** Called for each other top-level field. `nameOf` decodes its name. */
  readonly onOther: ((nameOf: () => string) => void) | undefined;
}

/**
 * Thrown for bytes that are not valid JSON. The message continues a sentence that begins with "the body",
 * such as "is not UTF-8".
 */
export class JsonInvalid extends Error {
  override readonly name = 'JsonInvalid';
}

/**
 * Validates bytes as JSON (RFC 8259). Returns an object with only the named fields, or undefined for JSON that
 * is not an object. The other fields are validated too. The last of duplicate fields wins. A number with an
 * integer value of up to 19 digits becomes a bigint. A nested array becomes `[]`, and a nested object `{}`. The time depends only
 * on the length of the input. Throws JsonInvalid.
 *
 * @param fields names of the fields to return, of ASCII letters and digits
 * @param numberFields names of the fields whose integers become numbers instead of bigints
 * @param onOther called for each other field, also if the bytes after it are invalid; `nameOf` decodes its name
 */
export function parseJson(
  bytes: Buffer,
  fields: readonly string[],
  numberFields: readonly string[] = [],
  onOther?: (nameOf: () => string) => void,
): unknown {
  if (bytes.length === 0) throw new JsonInvalid('is empty; it must be a JSON object');
  if (!isUtf8(bytes)) throw new JsonInvalid('is not UTF-8');
  // RFC 8259 §8.1 forbids senders to add one. It is invisible, so a position would not help. 0xef is its first byte.
  if (bytes[0] === 0xef && bytes.indexOf('\ufeff') === 0)
    throw new JsonInvalid('is not JSON: it begins with a byte-order mark; send it without');
  const start = skipSpace(bytes, 0);
  const members = fields.map((name): Member => ({ name, start: 0, end: 0 }));
  const end = skipSpace(bytes, skipValue(bytes, start, MAX_JSON_DEPTH, { members, onOther }));
  if (end < bytes.length) throw expected('the end of the text', bytes, end);
  return bytes[start] === OPENING_BRACE ? decodeMembers(bytes, members, numberFields) : undefined;
}

// The `skip…` functions below take the start of a token or value and return its end.

function skipValue(bytes: Buffer, start: number, levels: number, search?: Search): number {
  const first = bytes[start];
  if (first === QUOTE) return skipString(bytes, start);
  if (first === OPENING_BRACE) return skipObject(bytes, start, levels, search);
  if (first === OPENING_BRACKET) return skipArray(bytes, start, levels);
  if (first === MINUS || isDigit[first ?? 0] === 1) return skipNumber(bytes, start);
  if (first === T) return skipLiteral(bytes, start, 'true');
  if (first === F) return skipLiteral(bytes, start, 'false');
  if (first === N) return skipLiteral(bytes, start, 'null');
  throw expected('a value', bytes, start);
}

function skipObject(bytes: Buffer, start: number, levels: number, search?: Search): number {
  if (levels === 0) throw tooDeep();
  let at = skipSpace(bytes, start + 1);
  if (bytes[at] === CLOSING_BRACE) return at + 1;
  for (;;) {
    if (bytes[at] !== QUOTE) throw expected('a field name in quotation marks', bytes, at);
    const nameEnd = skipString(bytes, at);
    const colon = skipSpace(bytes, nameEnd);
    if (bytes[colon] !== COLON) throw expected('a colon', bytes, colon);
    const value = skipSpace(bytes, colon + 1);
    const valueEnd = skipValue(bytes, value, levels - 1);
    if (search !== undefined) note(search, bytes, at, nameEnd, value, valueEnd);
    const next = skipSpace(bytes, valueEnd);
    if (bytes[next] === CLOSING_BRACE) return next + 1;
    if (bytes[next] !== COMMA) throw expected('a comma or }', bytes, next);
    at = skipSpace(bytes, next + 1);
  }
}

function skipArray(bytes: Buffer, start: number, levels: number): number {
  if (levels === 0) throw tooDeep();
  let at = skipSpace(bytes, start + 1);
  if (bytes[at] === CLOSING_BRACKET) return at + 1;
  for (;;) {
    const next = skipSpace(bytes, skipValue(bytes, at, levels - 1));
    if (bytes[next] === CLOSING_BRACKET) return next + 1;
    if (bytes[next] !== COMMA) throw expected('a comma or ]', bytes, next);
    at = skipSpace(bytes, next + 1);
  }
}

function skipSpace(bytes: Buffer, start: number): number {
  let at = start;
  while (isSpace[bytes[at] ?? 0] === 1) at += 1;
  return at;
}

function skipString(bytes: Buffer, start: number): number {
  let at = start + 1;
  for (;;) {
    while (isPlain[bytes[at] ?? 0] === 1) at += 1;
    if (bytes[at] === QUOTE) return at + 1;
    if (at >= bytes.length) throw expected('a closing quotation mark', bytes, at);
    if (bytes[at] !== BACKSLASH) throw unescaped(bytes, at);
    at = skipEscape(bytes, at);
  }
}

function skipEscape(bytes: Buffer, start: number): number {
  switch (bytes[start + 1]) {
    case QUOTE:
    case BACKSLASH:
    case SLASH:
    case B:
    case F:
    case N:
    case R:
    case T:
      return start + 2;
    case U:
      for (let at = start + 2; at < start + ESCAPED_UNIT_LENGTH; at += 1) {
        if (hexValue(bytes[at]) === -1) throw expected('a hexadecimal digit', bytes, at);
      }
      return start + ESCAPED_UNIT_LENGTH;
    default:
      throw expected('one of " \\ / b f n r t u after the backslash', bytes, start + 1);
  }
}

function skipNumber(bytes: Buffer, start: number): number {
  let at = bytes[start] === MINUS ? start + 1 : start;
  at = bytes[at] === ZERO ? at + 1 : skipDigits(bytes, at);
  if (bytes[at] === POINT) at = skipDigits(bytes, at + 1);
  if (bytes[at] !== E && bytes[at] !== CAPITAL_E) return at;
  const sign = bytes[at + 1];
  return skipDigits(bytes, sign === PLUS || sign === MINUS ? at + 2 : at + 1);
}

function skipDigits(bytes: Buffer, start: number): number {
  let at = start;
  while (isDigit[bytes[at] ?? 0] === 1) at += 1;
  if (at === start) throw expected('a digit', bytes, at);
  return at;
}

function skipLiteral(bytes: Buffer, start: number, literal: string): number {
  for (let index = 1; index < literal.length; index += 1) {
    if (bytes[start + index] !== literal.charCodeAt(index)) throw expected('a value', bytes, start);
  }
  return start + literal.length;
}

function note(
  { members, onOther }: Search,
  bytes: Buffer,
  nameStart: number,
  nameEnd: number,
  start: number,
  end: number,
): void {
  const member = members.find(({ name }) => isName(name, bytes, nameStart + 1, nameEnd - 1));
  if (member === undefined) onOther?.(() => String(decode(bytes, nameStart, nameEnd)));
  else {
    member.start = start;
    member.end = end;
  }
}

/**
 * Compares a field name with the undecoded bytes of a JSON string. Decoding every name in an object with many
 * fields would be too slow.
 */
function isName(name: string, bytes: Buffer, start: number, end: number): boolean {
  if (end - start !== name.length) return end - start > name.length && isEscapedName(name, bytes, start, end);
  for (let index = 0; index < name.length; index += 1) {
    if (bytes[start + index] !== name.charCodeAt(index)) return false;
  }
  return true;
}

function isEscapedName(name: string, bytes: Buffer, start: number, end: number): boolean {
  let at = start;
  for (let index = 0; index < name.length; index += 1) {
    const isEscaped = bytes[at] === BACKSLASH;
    if ((isEscaped ? unitOfEscape(bytes, at) : bytes[at]) !== name.charCodeAt(index)) return false;
    at += isEscaped ? ESCAPED_UNIT_LENGTH : 1;
  }
  return at === end;
}

/**
 * Returns the code unit of `\uXXXX`. Returns undefined for a short escape such as `\n`. Field names contain
 * only letters and digits, and short escapes never encode these.
 */
function unitOfEscape(bytes: Buffer, start: number): number | undefined {
  if (bytes[start + 1] !== U) return undefined;
  let unit = 0;
  for (let at = start + 2; at < start + ESCAPED_UNIT_LENGTH; at += 1) unit = unit * 16 + hexValue(bytes[at]);
  return unit;
}

/** Returns the value of a hexadecimal digit; -1 for any other byte. */
function hexValue(byte = 0): number {
  if (isDigit[byte] === 1) return byte - ZERO;
  const letter = byte | LOWER_CASE;
  return letter >= A && letter <= F ? letter - A + 10 : -1;
}

function decodeMembers(
  bytes: Buffer,
  members: readonly Member[],
  numberFields: readonly string[],
): Record<string, unknown> {
  const object: Record<string, unknown> = {};
  for (const { name, start, end } of members) {
    if (end === 0) continue;
    const value = decode(bytes, start, end);
    object[name] = typeof value === 'bigint' && numberFields.includes(name) ? Number(value) : value;
  }
  return object;
}

/** Decodes a JSON value that is already validated. */
function decode(bytes: Buffer, start: number, end: number): unknown {
  switch (bytes[start]) {
    case QUOTE:
      return decodeString(bytes.toString('utf8', start + 1, end - 1));
    case OPENING_BRACE:
      return {};
    case OPENING_BRACKET:
      return [];
    case T:
      return true;
    case F:
      return false;
    case N:
      return null;
    default:
      return decodeNumber(bytes, start, end);
  }
}

function decodeString(text: string): unknown {
  return text.includes('\\') ? JSON.parse(`"${text}"`) : text;
}

function decodeNumber(bytes: Buffer, start: number, end: number): bigint | number {
  const short = end - start <= MAX_EXACT_DIGITS ? decodeDigits(bytes, start, end) : undefined;
  if (short !== undefined) return BigInt(short);
  const source = bytes.toString('latin1', start, end);
  return parseIntegerSource(source) ?? Number(source);
}

/**
 * Decodes a number of up to 15 digits, which a double represents exactly. Returns undefined if a character is
 * not a digit.
 */
function decodeDigits(bytes: Buffer, start: number, end: number): number | undefined {
  let value = 0;
  for (let at = start; at < end; at += 1) {
    const byte = bytes[at] ?? 0;
    if (isDigit[byte] !== 1) return undefined;
    value = value * 10 + byte - ZERO;
  }
  return value;
}

function tooDeep(): JsonInvalid {
  return new JsonInvalid(`is nested too deep; the limit is ${MAX_JSON_DEPTH} levels`);
}

function expected(what: string, bytes: Buffer, at: number): JsonInvalid {
  const place = `at character ${charactersBefore(bytes, at) + 1}`;
  return new JsonInvalid(
    `is not JSON: expected ${what} ${at < bytes.length ? place : `${place}, where the text ends`}`,
  );
}

function unescaped(bytes: Buffer, at: number): JsonInvalid {
  const place = charactersBefore(bytes, at) + 1;
  return new JsonInvalid(`is not JSON: the control character at character ${place} must be escaped`);
}

function charactersBefore(bytes: Buffer, end: number): number {
  let count = 0;
  for (let at = 0; at < end; at += 1) {
    if (((bytes[at] ?? 0) & 0xc0) !== 0x80) count += 1;
  }
  return count;
}
