/** Control characters (C0, DEL, C1), line separators, and those that turn the direction of text (UAX #9). */
const UNSAFE = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;
const UNSAFE_IN_LINES = /(?!\n)[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

/** Writes a line for people to standard error. It may quote anything: what a terminal would act on is escaped. */
export function writeMessage(line: string): void {
  process.stderr.write(`${escapeLine(line)}\n`);
}

/** Escapes what a terminal would act on, line breaks included. */
export function escapeLine(text: string): string {
  return text.replace(UNSAFE, escapeOne);
}

/** The same for a text of several lines, which stay as they are. */
export function escapeLines(text: string): string {
  return text.replace(UNSAFE_IN_LINES, escapeOne);
}

function escapeOne(character: string): string {
  if (character === '\n') return '\\n';
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
