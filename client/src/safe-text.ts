/** Min characters of a token that is searched: a shorter one, such as `e`, is a part of many words. */
const MIN_TOKEN_LENGTH = 8;

/** Matches characters that could change how a terminal shows a text. */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/gu;

/** Matches a visible ASCII character as JSON may escape it, as in `plt\u005f` or `\/`. */
const ESCAPED = /\\(?:u00([2-7][0-9a-f])|\/)/gi;

/** Replaces the token of a request in a text. An echo of the request contains the token. */
export function redacted(text: string, token: string): string {
  return token.length < MIN_TOKEN_LENGTH ? text : text.replaceAll(token, '[token]');
}

/** As `redacted`, for a text that may be JSON: decodes escapes in which the token could hide. */
export function redactedJson(text: string, token: string): string {
  const plain = text.replace(ESCAPED, (_escape, hex = '2f') => String.fromCharCode(Number.parseInt(hex, 16)));
  return redacted(plain, token);
}

/** Replaces the characters of a text that a terminal or a log could take for more than text, also line breaks. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, '\ufffd');
}
