import type { Output } from './context.ts';

/**
 * Characters that may confuse a terminal. They are control characters (C0, DEL, C1), line separators, and
 * characters that change the text direction (UAX #9).
 */
const UNSAFE = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;
const UNSAFE_IN_LINES = /(?!\n)[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

/** Writes a line to standard error. Escapes control characters, since a message may quote any input. */
export function writeMessage(stderr: Output, line: string): void {
  stderr.write(`${escapeLine(line)}\n`);
}

/** Escapes characters that control a terminal, line breaks included. */
export function escapeLine(text: string): string {
  return text.replace(UNSAFE, escapeOne);
}

/** Escapes characters that control a terminal, except line breaks. */
export function escapeLines(text: string): string {
  return text.replace(UNSAFE_IN_LINES, escapeOne);
}

/**
 * Hides tokens, and passwords in URLs, in a message that quotes arguments. A password may contain any character, so the
 * text up to the last `@` of a line is hidden.
 */
export function redact(text: string): string {
  return text
    .replace(/plt_[0-9A-Za-z]{20,}/g, 'plt_***')
    .replace(/(:\/\/[^\s:@/]*):.*@/g, '$1:***@')
    .replace(/([?&]password=)[^&\s]*/g, '$1***');
}

function escapeOne(character: string): string {
  if (character === '\n') return '\\n';
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** Returns a number with its noun: `1 plant`, `630 plants`. */
export function pluralize(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
