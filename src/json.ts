import { isUtf8 } from 'node:buffer';
import { messageOf } from './errors.ts';
import { parseIntegerSource } from './plant.ts';

/** Nesting that is read; RFC 8259 §9 lets a parser set a limit. A NewPlant has 1. */
export const MAX_JSON_DEPTH = 64;

/** A digit before a point or an exponent: only then can a number that a double shows as an integer be something else. */
const MAYBE_NOT_PLAIN = /[0-9][.eE]/;

/** Bytes that are not the JSON they should be. The message says what they are: `is not UTF-8`. */
export class JsonInvalid extends Error {
  override readonly name = 'JsonInvalid';
}

/**
 * Parses bytes as JSON (RFC 8259) with the top-level `id` exact: a bigint wherever the source text is an integer.
 * Throws JsonInvalid when they are not JSON, not UTF-8, or nested too deep.
 */
export function parseJson(bytes: Buffer): unknown {
  if (bytes.length === 0) throw new JsonInvalid('is empty; it must be a JSON object');
  if (!isUtf8(bytes)) throw new JsonInvalid('is not UTF-8');
  const text = bytes.toString('utf8');
  const value = parse(text);
  if (isDeeperThan(value, MAX_JSON_DEPTH)) {
    throw new JsonInvalid(`is nested too deep; at most ${MAX_JSON_DEPTH} levels are read`);
  }
  if (hasNumericId(value)) {
    const exact: { id: unknown } = value;
    exact.id = exactId(value.id, text);
  }
  return value;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error: unknown) {
    throw new JsonInvalid(`is not JSON: ${messageOf(error)}`);
  }
}

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (levels === 0) return true;
  for (const member of Object.values(value)) {
    if (typeof member === 'object' && isDeeperThan(member, levels - 1)) return true;
  }
  return false;
}

function hasNumericId(value: unknown): value is { id: number } {
  return typeof value === 'object' && value !== null && 'id' in value && typeof value.id === 'number';
}

function exactId(id: number, text: string): bigint | number {
  if (Number.isSafeInteger(id) && !MAYBE_NOT_PLAIN.test(text)) return BigInt(id);
  return parseIntegerSource(idSource(text)) ?? id;
}

/** The source text of the number that `id` holds at the top level (ECMAScript: JSON.parse source text access). */
function idSource(text: string): string {
  const root: unknown = JSON.parse(text, (key: string, value: unknown, ...context: unknown[]) =>
    key === 'id' && typeof value === 'number' ? sourceOf(context[0]) : value,
  );
  return typeof root === 'object' && root !== null && 'id' in root && typeof root.id === 'string'
    ? root.id
    : '';
}

function sourceOf(context: unknown): string {
  return typeof context === 'object' && context !== null && 'source' in context ? String(context.source) : '';
}
