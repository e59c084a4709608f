import type { Output } from './context.ts';

/** Control characters (C0, DEL, C1), line separators, and characters that change the text direction (UAX #9). */
const UNSAFE = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;
const UNSAFE_IN_LINES = /(?!\n)[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

/** Writes a line to standard error, with control characters escaped: messages may quote any input. */
export function writeMessage(stderr: Output, line: string): void {
  stderr.write(`${escapeLine(line)}\n`);
}

/** Escapes characters that control a terminal, line breaks included. */
export function escapeLine(text: string): string {
  return text.replace(UNSAFE, escapeOne);
}

/** Escapes a text of several lines; keeps its line breaks. */
export function escapeLines(text: string): string {
  return text.replace(UNSAFE_IN_LINES, escapeOne);
}

function escapeOne(character: string): string {
  if (character === '\n') return '\\n';
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** A number and its noun: `1 plant`, `630 plants`. */
export function pluralize(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
