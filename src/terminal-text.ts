/**
 * Characters that may confuse a terminal. They are control characters (C0, DEL, C1), line separators, and
 * characters that change the text direction (UAX #9).
 */
const UNSAFE = '[\\p{Cc}\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]';

/** Colour sequences of a terminal (ECMA-48 §8.3.117, SGR). */
const COLOUR = '\\u001b\\[[\\d;]*m';

const unsafe = new RegExp(UNSAFE, 'gu');
const unsafeInLines = new RegExp(`(?!\\n)${UNSAFE}`, 'gu');
const unsafeInColouredLines = new RegExp(`(?!\\n|${COLOUR})${UNSAFE}`, 'gu');

/** Escapes characters that control a terminal, line breaks included. */
export function escapeLine(text: string): string {
  return text.replace(unsafe, escapeOne);
}

/** Escapes characters that control a terminal, except line breaks. */
export function escapeLines(text: string): string {
  return text.replace(unsafeInLines, escapeOne);
}

/** Escapes characters that control a terminal, except line breaks and colours. */
export function escapeColouredLines(text: string): string {
  return text.replace(unsafeInColouredLines, escapeOne);
}

function escapeOne(character: string): string {
  if (character === '\n') return '\\n';
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
