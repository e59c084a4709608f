/** Replaces the token of a request in a text. An echo of the request contains the token. */
export function redacted(text: string, token: string): string {
  return token === '' ? text : text.replaceAll(token, '[token]');
}
