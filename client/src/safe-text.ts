/** Min characters of a token that is searched: a shorter one, such as `e`, is a part of many words. */
const MIN_TOKEN_LENGTH = 8;

/** Replaces a token in a text. */
const REPLACEMENT = '[token]';

/** Max characters of a character in JSON, as in `\u005f`. */
const ESCAPED_LENGTH = 6;

/** Matches characters that could change how a terminal shows a text. */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/gu;

/** Matches a visible ASCII character as JSON may escape it, as in `plt\u005f` or `\/`. */
const ESCAPED = /\\(?:u00([2-7][0-9a-f])|\/)/gi;

/** Replaces the token of a request in a text. An echo of the request contains the token. */
export function redacted(text: string, token: string): string {
  return token.length < MIN_TOKEN_LENGTH ? text : text.replaceAll(token, REPLACEMENT);
}

/**
 * Returns the first `length` characters of a text that may be JSON, which may have many MiB. Decodes escapes in which the
 * token could hide, and replaces it as `redacted` does. Reads only the start of the text: `length` characters and the tokens
 * that they may replace, each as long as an escape.
 */
export function redactedBegin(text: string, token: string, length: number): string {
  const tokens = Math.ceil(length / REPLACEMENT.length);
  const plain = text
    .slice(0, ESCAPED_LENGTH * (length + tokens * token.length))
    .replace(ESCAPED, (_escape, hex = '2f') => String.fromCharCode(Number.parseInt(hex, 16)));
  return redacted(plain, token).slice(0, length);
}

/** Replaces the characters of a text that a terminal or a log could take for more than text, also line breaks. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, '\ufffd');
}
